// SPDX-License-Identifier: Apache-2.0
// Memory-clock side of control: initialises the memories after a hardware reset, then carries out
// the commands of the register side one by one. A command is done when all it changes has settled.
module np_core_ctrl
  import np_pkg::*;
#(
  parameter int unsigned InitW = 15,  // log2 of the words to initialise
  parameter int unsigned PtrW = 14,
  parameter int unsigned CyclesPer100us = 40000
) (
  input  logic            clk_i,
  input  logic            rst_ni,
  input  logic            cmd_valid_i,
  input  cmd_t            cmd_i,
  output logic            cmd_done_o,
  output logic            init_we_o,
  output logic [InitW-1:0] init_group_o,
  output logic            init_done_o,
  output cfg_t            cfg_o,        // with the threshold in force
  output logic            enable_o,     // requests entering now are offered
  output logic            restart_o,    // down-sampling starts anew
  output logic            clear_o,      // new epoch
  output logic            reset_o,      // with clear_o: forget hot list and statistics as well
  output logic            snapshot_o,
  output logic            applied_o,    // a command that changes counting takes effect
  output logic [PtrW-1:0] head_o,
  output logic            generation_o  // changes with every reset
);
  // Longer than the pipeline from request to statistics.
  localparam int unsigned DrainCycles = 20;
  localparam int unsigned SettleCycles = 4;
  localparam int unsigned WaitW = 5;

  typedef enum logic [1:0] {StInit, StIdle, StDrain, StSettle} state_e;

  state_e state_d, state_q;
  logic [WaitW-1:0] wait_d, wait_q;
  logic [InitW-1:0] group_q;
  cfg_t cfg_d, cfg_q;
  logic enable_d, enable_q, generation_d, generation_q;
  logic [PtrW-1:0] head_d, head_q;
  logic clear, fire;

  always_comb begin
    state_d = state_q;
    wait_d = wait_q;
    cfg_d = cfg_q;
    enable_d = enable_q;
    head_d = head_q;
    generation_d = generation_q;
    cmd_done_o = 1'b0;
    restart_o = 1'b0;
    clear = 1'b0;
    reset_o = 1'b0;
    snapshot_o = 1'b0;
    applied_o = 1'b0;

    unique case (state_q)
      StInit: if (&group_q) state_d = StIdle;
      StIdle: begin
        if (cmd_valid_i) begin
          state_d = StSettle;
          wait_d = WaitW'(SettleCycles);
          unique case (cmd_i.op)
            OpEnable: begin
              cfg_d = cmd_i.cfg;
              enable_d = 1'b1;
              restart_o = 1'b1;
            end
            OpDisable, OpReset: begin
              enable_d = 1'b0;
              state_d = StDrain;
              wait_d = WaitW'(DrainCycles);
            end
            OpThreshold: begin
              cfg_d.threshold = cmd_i.cfg.threshold;
              applied_o = 1'b1;
            end
            OpHead: begin
              head_d = cmd_i.head[PtrW-1:0];
              applied_o = 1'b1;
            end
            OpClear: begin
              clear = 1'b1;
              applied_o = 1'b1;
            end
            OpSnapshot: snapshot_o = 1'b1;
            OpSnapshotClear: begin
              snapshot_o = 1'b1;
              clear = 1'b1;
              applied_o = 1'b1;
            end
            default: ;
          endcase
        end
      end
      StDrain: begin
        wait_d = wait_q - WaitW'(1);
        if (wait_q == '0) begin
          state_d = StSettle;
          wait_d = WaitW'(SettleCycles);
          if (cmd_i.op == OpReset) begin
            clear = 1'b1;
            reset_o = 1'b1;
            head_d = '0;
            generation_d = !generation_q;
          end
        end
      end
      StSettle: begin
        wait_d = wait_q - WaitW'(1);
        if (wait_q == '0) begin
          state_d = StIdle;
          cmd_done_o = 1'b1;
        end
      end
      default: state_d = StIdle;
    endcase
  end

  np_timer #(
    .CyclesPer100us(CyclesPer100us)
  ) u_timer (
    .clk_i,
    .rst_ni,
    .run_i(enable_q && cfg_q.epoch_mode),
    .restart_i(clear),
    .ticks_i(cfg_q.epoch_ticks),
    .fire_o(fire)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= StInit;
      wait_q <= '0;
      group_q <= '0;
      cfg_q <= '0;
      enable_q <= 1'b0;
      head_q <= '0;
      generation_q <= 1'b0;
    end else begin
      state_q <= state_d;
      wait_q <= wait_d;
      if (state_q == StInit) group_q <= group_q + InitW'(1);
      cfg_q <= cfg_d;
      enable_q <= enable_d;
      head_q <= head_d;
      generation_q <= generation_d;
    end
  end

  assign init_we_o = state_q == StInit;
  assign init_group_o = group_q;
  assign init_done_o = state_q != StInit;
  assign cfg_o = cfg_q;
  assign enable_o = enable_q;
  assign clear_o = clear || fire;
  assign head_o = head_q;
  assign generation_o = generation_q;

  logic unused_head;
  assign unused_head = ^cmd_i.head;
endmodule
