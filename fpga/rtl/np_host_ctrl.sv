// SPDX-License-Identifier: Apache-2.0
// Register-clock side of control: turns what software wrote into commands for the memory side,
// one at a time, most urgent first, after checking it. The bus never waits for it; software sees
// in the status registers what is still on its way.
module np_host_ctrl
  import np_pkg::*;
#(
  parameter int unsigned PtrW = 14
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  // Registers.
  input  logic        enable_i,
  input  logic        reset_i,      // pulses
  input  logic        clear_i,
  input  logic        snapshot_i,
  input  logic        head_written_i,  // head_i is new in the next cycle
  input  logic [15:0] head_i,
  input  logic [7:0]  what_i,
  input  logic        random_i,
  input  logic        conservative_i,
  input  logic        coalesce_i,
  input  logic        by_parts_i,
  input  logic [15:0] use_window_i,
  input  logic [15:0] run_window_i,
  input  logic [31:0] threshold_i,
  input  logic [31:0] unit_size_i,
  input  logic [7:0]  downsampling_i,
  input  logic [7:0]  mode_i,
  input  logic [3:0]  epoch_scale_i,
  input  logic [11:0] epoch_multiplier_i,
  output logic        enabled_o,
  output logic [15:0] operation_o,
  output logic        clear_pending_o,
  output logic        snapshot_pending_o,
  output logic        head_pending_o,
  output logic        threshold_pending_o,
  output cnt_t        threshold_o,     // in force
  output logic        locked_o,        // the range bitmap is in use
  output logic        refuse_o,        // enable is refused: set the register back
  output logic [5:0]  error_o,         // why: what, unit, sampling, mode, epoch, threshold
  output logic        head_we_o,       // set the head register to head_o
  output logic [PtrW-1:0] head_o,
  output logic        head_error_o,
  output logic        was_reset_o,     // hot list and status are to be cleared
  // Link with the memory side.
  output logic        send_o,
  output cmd_t        cmd_o,
  input  logic        busy_i,
  input  logic        generation_i,
  input  logic [PtrW-1:0] tail_i,
  output logic        current_o,       // tail_i is of the present generation
  // Error bound.
  output logic        bound_start_o,
  input  logic        bound_busy_i
);
  typedef enum logic [1:0] {StIdle, StWait, StReset, StBound} state_e;
  localparam logic [15:0] OperationEnable = 16'd1;
  localparam logic [15:0] OperationDisable = 16'd2;
  localparam logic [15:0] OperationReset = 16'd3;

  state_e state_d, state_q;
  op_e op_d, op_q;
  cnt_t sent_d, sent_q, threshold_d, threshold_q;
  logic enabled_d, enabled_q, generation_d, generation_q;
  logic reset_d, reset_q, clear_d, clear_q, snapshot_d, snapshot_q, head_pend_d, head_pend_q;
  logic clear_first_d, clear_first_q, disable_d, disable_q, enable_q;
  logic snapshot_sent, clear_sent, enabling;
  logic written_q, head_ok;
  logic [PtrW-1:0] head_d, head_q, ahead, filled;
  logic bad_threshold, new_threshold;
  logic [5:0] bad;
  logic [TickW-1:0] ticks;

  // ---------------------------------------------------------------- checks
  assign bad_threshold = threshold_i[31:CntW] != '0;
  assign new_threshold = enabled_q && !bad_threshold && threshold_i[CntW-1:0] != threshold_q;
  assign bad = {
    bad_threshold,
    mode_i == 8'd0 && (epoch_scale_i == 4'd0 || epoch_scale_i > 4'd5 || epoch_multiplier_i == '0),
    mode_i > 8'd1,
    downsampling_i > 8'd15,
    unit_size_i < 32'(MinUnitLog2) || unit_size_i > 32'(MaxUnitLog2),
    what_i == 8'd0 || what_i > 8'd6
  };

  always_comb begin
    unique case (epoch_scale_i)
      4'd2: ticks = TickW'(epoch_multiplier_i) * TickW'(10);
      4'd3: ticks = TickW'(epoch_multiplier_i) * TickW'(100);
      4'd4: ticks = TickW'(epoch_multiplier_i) * TickW'(1000);
      4'd5: ticks = TickW'(epoch_multiplier_i) * TickW'(10000);
      default: ticks = TickW'(epoch_multiplier_i);
    endcase
  end

  assign enabling = state_q == StWait && op_q == OpEnable;
  assign current_o = generation_i == generation_q;
  assign ahead = head_i[PtrW-1:0] - head_q;
  assign filled = current_o ? tail_i - head_q : '0;
  assign head_ok = 32'(head_i) < (32'd1 << PtrW) && ahead <= filled;

  // ---------------------------------------------------------------- commands
  always_comb begin
    state_d = state_q;
    op_d = op_q;
    sent_d = sent_q;
    threshold_d = threshold_q;
    enabled_d = enabled_q;
    generation_d = generation_q;
    reset_d = reset_q | reset_i;
    clear_d = clear_q | clear_i;
    snapshot_d = snapshot_q | snapshot_i;
    // Of two commands that wait, the one that was written first goes first.
    clear_first_d = clear_first_q | (snapshot_i && clear_q && !snapshot_q);
    // Enable that falls and rises again while another command is on its way is a pair of commands.
    disable_d = disable_q | (enable_q && !enable_i && (enabled_q || enabling));
    head_pend_d = head_pend_q;
    head_d = head_q;
    send_o = 1'b0;
    refuse_o = 1'b0;
    was_reset_o = 1'b0;
    bound_start_o = 1'b0;

    if (written_q && head_ok) begin
      head_d = head_i[PtrW-1:0];
      head_pend_d = 1'b1;
    end

    unique case (state_q)
      StIdle: begin
        state_d = StWait;
        send_o = 1'b1;
        sent_d = threshold_i[CntW-1:0];
        if (reset_q) begin
          op_d = OpReset;
          reset_d = reset_i;
          generation_d = !generation_q;
          state_d = StReset;
        end else if (enabled_q && (disable_q || !enable_i)) begin
          op_d = OpDisable;
        end else if (!enabled_q && enable_i && bad == '0) begin
          op_d = OpEnable;
        end else if (new_threshold) begin
          op_d = OpThreshold;
        end else if (head_pend_q) begin
          op_d = OpHead;
          head_pend_d = written_q && head_ok;
        end else if (clear_q && snapshot_q && !clear_first_q) begin
          op_d = OpSnapshotClear;
          clear_d = clear_i;
          snapshot_d = snapshot_i;
        end else if (clear_q) begin
          op_d = OpClear;
          clear_d = clear_i;
          clear_first_d = 1'b0;
        end else if (snapshot_q) begin
          op_d = OpSnapshot;
          snapshot_d = snapshot_i;
        end else begin
          send_o = 1'b0;
          state_d = StIdle;
          refuse_o = !enabled_q && enable_i;
        end
      end
      StWait: begin
        if (!busy_i) begin
          state_d = StIdle;
          unique case (op_q)
            OpEnable: begin
              enabled_d = 1'b1;
              threshold_d = sent_q;
            end
            OpDisable: begin
              enabled_d = 1'b0;
              disable_d = 1'b0;
            end
            OpThreshold: threshold_d = sent_q;
            OpSnapshot, OpSnapshotClear: begin
              bound_start_o = 1'b1;
              state_d = StBound;
            end
            default: ;
          endcase
        end
      end
      StReset: begin
        // Until the tail of before the reset cannot arrive any more.
        if (!busy_i && current_o) begin
          state_d = StIdle;
          enabled_d = 1'b0;
          disable_d = 1'b0;
          was_reset_o = 1'b1;
          head_d = '0;
          head_pend_d = 1'b0;
        end
      end
      StBound: if (!bound_busy_i) state_d = StIdle;
      default: state_d = StIdle;
    endcase
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= StIdle;
      op_q <= OpReset;
      sent_q <= '0;
      threshold_q <= '0;
      enabled_q <= 1'b0;
      generation_q <= 1'b0;
      {reset_q, clear_q, snapshot_q, head_pend_q, written_q} <= '0;
      {clear_first_q, disable_q, enable_q} <= '0;
      head_q <= '0;
    end else begin
      state_q <= state_d;
      op_q <= op_d;
      sent_q <= sent_d;
      threshold_q <= threshold_d;
      enabled_q <= enabled_d;
      generation_q <= generation_d;
      reset_q <= reset_d;
      clear_q <= clear_d;
      snapshot_q <= snapshot_d;
      head_pend_q <= head_pend_d;
      clear_first_q <= clear_first_d;
      disable_q <= disable_d;
      enable_q <= enable_i;
      written_q <= head_written_i;
      head_q <= head_d;
    end
  end

  assign cmd_o = '{
    op: op_d,
    head: 16'(head_q),
    cfg: '{
      track_read: what_i != 8'd2 && what_i != 8'd5,
      track_write: what_i != 8'd1 && what_i != 8'd4,
      random: random_i,
      conservative: conservative_i,
      coalesce: coalesce_i,
      by_parts: by_parts_i,
      use_window: use_window_i,
      run_window: run_window_i,
      epoch_mode: mode_i == 8'd0,
      unit_shift: 4'(unit_size_i - 32'(MinUnitLog2)),
      downsample: downsampling_i[3:0],
      epoch_ticks: ticks,
      threshold: threshold_i[CntW-1:0]
    }
  };

  // ---------------------------------------------------------------- what software sees
  assign enabled_o = enabled_q;
  assign locked_o = enabled_q || enable_i;
  assign threshold_o = threshold_q;
  assign head_o = head_d;
  assign head_we_o = (written_q && !head_ok) || was_reset_o;
  assign head_error_o = written_q && !head_ok && !was_reset_o;
  assign error_o = refuse_o ? bad : {enabled_q && bad_threshold, 5'd0};
  assign snapshot_sent = op_q == OpSnapshot || op_q == OpSnapshotClear;
  assign clear_sent = op_q == OpClear || op_q == OpSnapshotClear;
  assign clear_pending_o = clear_i || clear_q || (state_q == StWait && clear_sent);
  assign snapshot_pending_o = snapshot_i || snapshot_q || (state_q == StWait && snapshot_sent) ||
      state_q == StBound;
  assign head_pending_o = written_q || head_pend_q || (state_q == StWait && op_q == OpHead);
  assign threshold_pending_o = new_threshold;

  always_comb begin
    operation_o = '0;
    if (reset_i || reset_q || state_q == StReset) operation_o = OperationReset;
    else if (enable_i && !enabled_q) operation_o = OperationEnable;
    else if (enabled_q && (disable_q || !enable_i)) operation_o = OperationDisable;
  end
endmodule
