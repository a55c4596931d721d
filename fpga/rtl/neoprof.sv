// SPDX-License-Identifier: Apache-2.0
// The NeoProf card: a profiler beside a memory controller. Snoops two request channels on the
// memory clock, one request each a clock, without ever holding them up; software sees it through
// AXI4-Lite on the register clock. The clocks need no relation. Every signal that crosses goes
// through one of: u_cmd (commands), u_tail (tail of the hot list, refused reports), u_init_sync,
// a two-clock memory whose readers wait for one of those, or the snapshot registers, which are
// stable once the snapshot command is acknowledged.
module neoprof
  import np_pkg::*;
#(
  parameter bit Tagged = 1'b0,                  // counts in a tagged table, not in the sketch
  parameter int unsigned Log2Width = 19,        // counters in a row (W), or entries of the table
  parameter int unsigned RingSize = 4096,      // slots of the hot list
  parameter int unsigned CyclesPer100us = 40000 // of the memory clock
) (
  input  logic        mem_clk_i,
  input  logic        reg_clk_i,
  input  logic        rst_ni,  // of both sides; asserted at any time
  // Snooped channels, memory clock.
  input  logic        req_valid_i [Channels],
  input  logic        req_write_i [Channels],
  input  addr_t       req_addr_i  [Channels],
  // AXI4-Lite, register clock.
  input  logic        axil_awvalid_i,
  output logic        axil_awready_o,
  input  logic [15:0] axil_awaddr_i,
  input  logic        axil_wvalid_i,
  output logic        axil_wready_o,
  input  logic [63:0] axil_wdata_i,
  input  logic [7:0]  axil_wstrb_i,
  output logic        axil_bvalid_o,
  input  logic        axil_bready_i,
  output logic [1:0]  axil_bresp_o,
  input  logic        axil_arvalid_i,
  output logic        axil_arready_o,
  input  logic [15:0] axil_araddr_i,
  output logic        axil_rvalid_o,
  input  logic        axil_rready_i,
  output logic [63:0] axil_rdata_o,
  output logic [1:0]  axil_rresp_o,
  output logic        irq_o
);
  localparam int unsigned PtrW = $clog2(RingSize);

  logic mem_rst_n, reg_rst_n;
  logic send, busy, cmd_valid, cmd_done;
  cmd_t host_cmd, core_cmd;
  logic init_done, init_done_sync;
  logic generation, refused, generation_sync, refused_sync;
  logic [PtrW-1:0] tail, tail_sync, slot;
  logic slot_re;
  logic [EntryW-1:0] entry;
  logic [63:0] stat [StatWords];
  logic [Log2Width:0] reached [HistBins];
  logic range_re [Channels];
  logic [5:0] range_word [Channels];
  logic [63:0] range_bits [Channels];

  np_rst_sync u_mem_rst (.clk_i(mem_clk_i), .rst_ni, .rst_no(mem_rst_n));
  np_rst_sync u_reg_rst (.clk_i(reg_clk_i), .rst_ni, .rst_no(reg_rst_n));

  np_core #(
    .Tagged(Tagged),
    .IdxW(Log2Width),
    .RingSize(RingSize),
    .CyclesPer100us(CyclesPer100us)
  ) u_core (
    .clk_i(mem_clk_i),
    .rst_ni(mem_rst_n),
    .req_valid_i,
    .req_write_i,
    .req_addr_i,
    .range_re_o(range_re),
    .range_word_o(range_word),
    .range_bits_i(range_bits),
    .cmd_valid_i(cmd_valid),
    .cmd_i(core_cmd),
    .cmd_done_o(cmd_done),
    .init_done_o(init_done),
    .generation_o(generation),
    .tail_o(tail),
    .refused_o(refused),
    .stat_o(stat),
    .reached_o(reached),
    .host_clk_i(reg_clk_i),
    .host_re_i(slot_re),
    .host_slot_i(slot),
    .host_entry_o(entry)
  );

  np_cdc_cmd #(
    .Width($bits(cmd_t))
  ) u_cmd (
    .src_clk_i(reg_clk_i),
    .src_rst_ni(reg_rst_n),
    .send_i(send),
    .data_i(host_cmd),
    .busy_o(busy),
    .dst_clk_i(mem_clk_i),
    .dst_rst_ni(mem_rst_n),
    .valid_o(cmd_valid),
    .data_o(core_cmd),
    .done_i(cmd_done)
  );

  np_cdc_latest #(
    .Width(PtrW + 1)
  ) u_tail (
    .src_clk_i(mem_clk_i),
    .src_rst_ni(mem_rst_n),
    .value_i({generation, tail}),
    .event_i(refused),
    .dst_clk_i(reg_clk_i),
    .dst_rst_ni(reg_rst_n),
    .value_o({generation_sync, tail_sync}),
    .event_o(refused_sync)
  );

  np_sync u_init_sync (
    .clk_i(reg_clk_i),
    .rst_ni(reg_rst_n),
    .d_i(init_done),
    .q_o(init_done_sync)
  );

  np_host #(
    .Tagged(Tagged),
    .IdxW(Log2Width),
    .RingSize(RingSize),
    .CyclesPer100us(CyclesPer100us)
  ) u_host (
    .clk_i(reg_clk_i),
    .rst_ni(reg_rst_n),
    .axil_awvalid_i,
    .axil_awready_o,
    .axil_awaddr_i,
    .axil_wvalid_i,
    .axil_wready_o,
    .axil_wdata_i,
    .axil_wstrb_i,
    .axil_bvalid_o,
    .axil_bready_i,
    .axil_bresp_o,
    .axil_arvalid_i,
    .axil_arready_o,
    .axil_araddr_i,
    .axil_rvalid_o,
    .axil_rready_i,
    .axil_rdata_o,
    .axil_rresp_o,
    .irq_o,
    .send_o(send),
    .cmd_o(host_cmd),
    .busy_i(busy),
    .init_done_i(init_done_sync),
    .generation_i(generation_sync),
    .tail_i(tail_sync),
    .refused_i(refused_sync),
    .stat_i(stat),
    .reached_i(reached),
    .slot_re_o(slot_re),
    .slot_o(slot),
    .entry_i(entry),
    .mem_clk_i,
    .range_re_i(range_re),
    .range_word_i(range_word),
    .range_bits_o(range_bits)
  );
endmodule
