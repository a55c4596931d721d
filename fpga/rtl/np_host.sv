// SPDX-License-Identifier: Apache-2.0
// All that runs on the register clock: the AXI4-Lite registers and their checks.
module np_host
  import np_pkg::*;
#(
  parameter bit Tagged = 1'b0,
  parameter int unsigned IdxW = 19,
  parameter int unsigned RingSize = 4096,
  parameter int unsigned CyclesPer100us = 40000,
  localparam int unsigned PtrW = $clog2(RingSize)
) (
  input  logic              clk_i,
  input  logic              rst_ni,
  input  logic              axil_awvalid_i,
  output logic              axil_awready_o,
  input  logic [15:0]       axil_awaddr_i,
  input  logic              axil_wvalid_i,
  output logic              axil_wready_o,
  input  logic [63:0]       axil_wdata_i,
  input  logic [7:0]        axil_wstrb_i,
  output logic              axil_bvalid_o,
  input  logic              axil_bready_i,
  output logic [1:0]        axil_bresp_o,
  input  logic              axil_arvalid_i,
  output logic              axil_arready_o,
  input  logic [15:0]       axil_araddr_i,
  output logic              axil_rvalid_o,
  input  logic              axil_rready_i,
  output logic [63:0]       axil_rdata_o,
  output logic [1:0]        axil_rresp_o,
  output logic              irq_o,
  // Link with the memory side.
  output logic              send_o,
  output cmd_t              cmd_o,
  input  logic              busy_i,
  input  logic              init_done_i,
  input  logic              generation_i,
  input  logic [PtrW-1:0]   tail_i,
  input  logic              refused_i,
  // Stable while read.
  input  logic [63:0]       stat_i    [StatWords],
  input  logic [IdxW:0]     reached_i [HistBins],
  output logic              slot_re_o,
  output logic [PtrW-1:0]   slot_o,
  input  logic [EntryW-1:0] entry_i,
  input  logic              mem_clk_i,
  input  logic              range_re_i   [Channels],
  input  logic [5:0]        range_word_i [Channels],
  output logic [63:0]       range_bits_o [Channels]
);
  np_regs_pkg::neoprof__in_t hw_in;
  np_regs_pkg::neoprof__out_t hw_out;
  np_regs_pkg::hotlist_mem__external__in_t hotlist_in;
  np_regs_pkg::range_mem__external__in_t range_bitmap_in;
  np_regs_pkg::histogram_block__external__in_t histogram_in;
  np_regs_pkg::snapshot_block__external__in_t snapshot_in;

  logic enabled, locked, refuse, head_we, head_error, was_reset, current;
  logic clear_pending, snapshot_pending, head_pending, threshold_pending;
  logic range_locked, ignored, up_q, irq_q;
  logic awready, wready, arready;
  logic [1:0] bus_errors;
  logic bound_start, bound_busy, bad_rank, bound_valid;
  logic [15:0] operation;
  logic [5:0] error;
  logic [PtrW-1:0] head, filled;
  cnt_t threshold;
  bin_t bound_bin;

  np_regs u_regs (
    .clk(clk_i),
    .arst_n(rst_ni),
    .s_axil_awready(awready),
    .s_axil_awvalid(axil_awvalid_i && up_q),
    .s_axil_awaddr(axil_awaddr_i),
    .s_axil_awprot('0),
    .s_axil_wready(wready),
    .s_axil_wvalid(axil_wvalid_i && up_q),
    .s_axil_wdata(axil_wdata_i),
    .s_axil_wstrb(axil_wstrb_i),
    .s_axil_bready(axil_bready_i),
    .s_axil_bvalid(axil_bvalid_o),
    .s_axil_bresp(axil_bresp_o),
    .s_axil_arready(arready),
    .s_axil_arvalid(axil_arvalid_i && up_q),
    .s_axil_araddr(axil_araddr_i),
    .s_axil_arprot('0),
    .s_axil_rready(axil_rready_i),
    .s_axil_rvalid(axil_rvalid_o),
    .s_axil_rdata(axil_rdata_o),
    .s_axil_rresp(axil_rresp_o),
    .hwif_in(hw_in),
    .hwif_out(hw_out)
  );

  np_host_ctrl #(
    .PtrW(PtrW)
  ) u_ctrl (
    .clk_i,
    .rst_ni,
    .enable_i(hw_out.chmu0.cfg0.enable.value),
    .reset_i(hw_out.chmu0.cfg0.reset.value),
    .clear_i(hw_out.vendor.command.clear.value),
    .snapshot_i(hw_out.vendor.command.snapshot.value),
    .head_written_i(hw_out.chmu0.hotlist.head.swmod),
    .head_i(hw_out.chmu0.hotlist.head.value),
    .what_i(hw_out.chmu0.cfg0.what.value),
    .random_i(hw_out.chmu0.cfg0.random_downsampling.value),
    .conservative_i(hw_out.vendor.config_.conservative.value),
    .by_parts_i(hw_out.vendor.config_.by_parts.value),
    .use_window_i(hw_out.vendor.config_.use_window.value),
    .coalesce_i(hw_out.vendor.config_.coalesce.value),
    .run_window_i(hw_out.vendor.config_.run_window.value),
    .threshold_i(hw_out.chmu0.cfg0.threshold.value),
    .unit_size_i(hw_out.chmu0.cfg1.unit_size.value),
    .downsampling_i(hw_out.chmu0.cfg1.downsampling.value),
    .mode_i(hw_out.chmu0.cfg1.mode.value),
    .epoch_scale_i(hw_out.chmu0.cfg1.epoch_scale.value),
    .epoch_multiplier_i(hw_out.chmu0.cfg1.epoch_multiplier.value),
    .enabled_o(enabled),
    .operation_o(operation),
    .clear_pending_o(clear_pending),
    .snapshot_pending_o(snapshot_pending),
    .head_pending_o(head_pending),
    .threshold_pending_o(threshold_pending),
    .threshold_o(threshold),
    .locked_o(locked),
    .refuse_o(refuse),
    .error_o(error),
    .head_we_o(head_we),
    .head_o(head),
    .head_error_o(head_error),
    .was_reset_o(was_reset),
    .send_o,
    .cmd_o,
    .busy_i,
    .generation_i,
    .tail_i,
    .current_o(current),
    .bound_start_o(bound_start),
    .bound_busy_i(bound_busy)
  );

  np_host_mem #(
    .IdxW(IdxW),
    .RingSize(RingSize)
  ) u_mem (
    .clk_i,
    .rst_ni,
    .snapshot_i(hw_out.snapshot),
    .snapshot_o(snapshot_in),
    .histogram_i(hw_out.histogram),
    .histogram_o(histogram_in),
    .range_i(hw_out.range_bitmap),
    .range_o(range_bitmap_in),
    .hotlist_i(hw_out.hotlist),
    .hotlist_o(hotlist_in),
    .locked_i(locked),
    .range_locked_o(range_locked),
    .ignored_o(ignored),
    .stat_i,
    .reached_i,
    .slot_re_o,
    .slot_o,
    .entry_i,
    .mem_clk_i,
    .range_re_i,
    .range_word_i,
    .range_bits_o
  );

  np_error_bound #(
    .IdxW(IdxW)
  ) u_bound (
    .clk_i,
    .rst_ni,
    .start_i(bound_start),
    .rank_i(hw_out.vendor.error_rank.rank.value),
    .reached_i,
    .busy_o(bound_busy),
    .bad_rank_o(bad_rank),
    .valid_o(bound_valid),
    .bin_o(bound_bin)
  );

  // In reset and in the cycle after it the bus takes nothing, for what it took then it would not
  // answer. The rank's value after a reset depends on a parameter: written in that cycle.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) up_q <= 1'b0;
    else up_q <= 1'b1;
  end

  assign axil_awready_o = awready && up_q;
  assign axil_wready_o = wready && up_q;
  assign axil_arready_o = arready && up_q;

  // A refused write and read may be answered in the cycle of a write that is ignored.
  assign bus_errors = 2'(ignored) + 2'(axil_bvalid_o && axil_bready_i && axil_bresp_o[1]) +
      2'(axil_rvalid_o && axil_rready_i && axil_rresp_o[1]);

  assign filled = current ? tail_i - hw_out.chmu0.hotlist.head.value[PtrW-1:0] : '0;

  always_comb begin
    hw_in.snapshot = snapshot_in;
    hw_in.histogram = histogram_in;
    hw_in.range_bitmap = range_bitmap_in;
    hw_in.hotlist = hotlist_in;
    hw_in.chmu0.cap0.hotlist_size.next = 16'(RingSize);
    hw_in.chmu0.cfg0.enable.hwclr = refuse;
    hw_in.chmu0.status.enabled.next = enabled;
    hw_in.chmu0.status.operation.next = operation;
    hw_in.chmu0.status.overflow.hwset = refused_i && current && !was_reset;
    hw_in.chmu0.status.overflow.hwclr = was_reset;
    hw_in.chmu0.status.fill.hwset = hw_out.chmu0.cfg2.fill_threshold.value != '0 && !was_reset &&
        !head_we && 16'(filled) >= hw_out.chmu0.cfg2.fill_threshold.value;
    hw_in.chmu0.status.fill.hwclr = was_reset;
    hw_in.chmu0.hotlist.head.next = 16'(head);
    hw_in.chmu0.hotlist.head.we = head_we;
    hw_in.chmu0.hotlist.tail.next = current ? 16'(tail_i) : '0;

    hw_in.vendor.geometry.depth.next = Tagged ? 8'd1 : 8'(Rows);
    hw_in.vendor.geometry.log2_width.next = 8'(IdxW);
    hw_in.vendor.geometry.counter_width.next = 8'(CntW);
    hw_in.vendor.geometry.channels.next = 8'(Channels);
    hw_in.vendor.geometry.histogram_bins.next = 8'(HistBins);
    hw_in.vendor.geometry.epoch_width.next = 8'(TagW);
    hw_in.vendor.geometry.log2_capacity.next = 8'(CapacityLog2);
    hw_in.vendor.geometry.log2_runs.next = 8'(CoalesceLog2);
    hw_in.vendor.tracker.kind.next = 8'(Tagged);
    hw_in.vendor.tracker.ways.next = Tagged ? 8'(Ways) : '0;
    hw_in.vendor.tracker.parts.next = Tagged ? 8'(Parts) : '0;
    hw_in.vendor.timebase.cycles_per_100us.next = 32'(CyclesPer100us);
    hw_in.vendor.status.initialising.next = !init_done_i;
    hw_in.vendor.status.clear_pending.next = clear_pending;
    hw_in.vendor.status.snapshot_pending.next = snapshot_pending;
    hw_in.vendor.status.head_pending.next = head_pending;
    hw_in.vendor.status.threshold_pending.next = threshold_pending;
    hw_in.vendor.config_error.what.hwset = error[0];
    hw_in.vendor.config_error.unit_size.hwset = error[1];
    hw_in.vendor.config_error.downsampling.hwset = error[2];
    hw_in.vendor.config_error.mode.hwset = error[3];
    hw_in.vendor.config_error.epoch.hwset = error[4];
    hw_in.vendor.config_error.threshold.hwset = error[5];
    hw_in.vendor.config_error.head.hwset = head_error;
    hw_in.vendor.config_error.error_rank.hwset = bad_rank;
    hw_in.vendor.config_error.range_locked.hwset = range_locked;
    hw_in.vendor.error_rank.rank.next = 32'(1 << (IdxW - 1));
    hw_in.vendor.error_rank.rank.we = !up_q;
    hw_in.vendor.error_bound.low.next = bound_valid ? hist_low(bound_bin) : '0;
    hw_in.vendor.error_bound.high.next = bound_valid ? hist_high(bound_bin) : '0;
    hw_in.vendor.error_bound.bin.next = bound_valid ? bound_bin : '0;
    hw_in.vendor.error_bound.valid.next = bound_valid;
    hw_in.vendor.bus_errors.count.incr = bus_errors != '0;
    hw_in.vendor.bus_errors.count.incrvalue = bus_errors;
    hw_in.vendor.threshold_in_force.threshold.next = threshold;
  end

  // From a flop, so that it may be used as an edge.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) irq_q <= 1'b0;
    else begin
      irq_q <=
          (hw_out.chmu0.status.overflow.value && hw_out.chmu0.cfg0.overflow_int_enable.value) ||
          (hw_out.chmu0.status.fill.value && hw_out.chmu0.cfg0.fill_int_enable.value);
    end
  end

  assign irq_o = irq_q;
endmodule
