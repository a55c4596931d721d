// SPDX-License-Identifier: Apache-2.0
// The card as the library Verilates it: the whole card, and a function that lets tests look at a
// counter of the sketch. Nothing here is synthesised.
`define NP_PARTIAL(r, k) u_card.u_core.u_sketch.gen_row[r].u_row.gen_partial[k].u_partial

module np_sim_card
  import np_pkg::*;
#(
  parameter int unsigned Log2Width = 19,
  parameter int unsigned RingSize = 4096,
  parameter int unsigned CyclesPer100us = 40000
) (
  input  logic        mem_clk_i,
  input  logic        reg_clk_i,
  input  logic        rst_ni,
  input  logic        req_valid_i [Channels],
  input  logic        req_write_i [Channels],
  input  addr_t       req_addr_i  [Channels],
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
  neoprof #(
    .Log2Width(Log2Width),
    .RingSize(RingSize),
    .CyclesPer100us(CyclesPer100us)
  ) u_card (
    .*
  );

  // Value of counter [row][index], or -1 if the copies of a memory differ or there is no such
  // index. Names in the hierarchy take constant indexes only, so the two rows and two partials are written out.
  export "DPI-C" function np_dpi_counter;

  typedef logic [CntW:0] word_t;
  typedef logic [TagW+GroupSize-1:0] group_word_t;

  function automatic int part(word_t word, word_t copy, group_word_t group, group_word_t group_copy,
                              logic [GroupLog2-1:0] slot);
    if (word != copy || group != group_copy) part = -65536;
    else if (group[GroupSize+:TagW] == u_card.u_core.u_sketch.epoch_q &&
             ((group >> slot) & 1) != '0) part = int'(word[CntW-1:0]);
    else part = 0;
  endfunction

  function automatic int row0(logic [Log2Width-1:0] i);
    logic [Log2Width-GroupLog2-1:0] g;
    g = i[Log2Width-1:GroupLog2];
    row0 = part(
        `NP_PARTIAL(0, 0).u_counters.gen_copy[0].u_ram.mem_q[i],
        `NP_PARTIAL(0, 0).u_counters.gen_copy[1].u_ram.mem_q[i],
        `NP_PARTIAL(0, 0).u_groups.gen_copy[0].u_ram.mem_q[g],
        `NP_PARTIAL(0, 0).u_groups.gen_copy[1].u_ram.mem_q[g], i[GroupLog2-1:0]);
    row0 += part(
        `NP_PARTIAL(0, 1).u_counters.gen_copy[0].u_ram.mem_q[i],
        `NP_PARTIAL(0, 1).u_counters.gen_copy[1].u_ram.mem_q[i],
        `NP_PARTIAL(0, 1).u_groups.gen_copy[0].u_ram.mem_q[g],
        `NP_PARTIAL(0, 1).u_groups.gen_copy[1].u_ram.mem_q[g], i[GroupLog2-1:0]);
  endfunction

  function automatic int row1(logic [Log2Width-1:0] i);
    logic [Log2Width-GroupLog2-1:0] g;
    g = i[Log2Width-1:GroupLog2];
    row1 = part(
        `NP_PARTIAL(1, 0).u_counters.gen_copy[0].u_ram.mem_q[i],
        `NP_PARTIAL(1, 0).u_counters.gen_copy[1].u_ram.mem_q[i],
        `NP_PARTIAL(1, 0).u_groups.gen_copy[0].u_ram.mem_q[g],
        `NP_PARTIAL(1, 0).u_groups.gen_copy[1].u_ram.mem_q[g], i[GroupLog2-1:0]);
    row1 += part(
        `NP_PARTIAL(1, 1).u_counters.gen_copy[0].u_ram.mem_q[i],
        `NP_PARTIAL(1, 1).u_counters.gen_copy[1].u_ram.mem_q[i],
        `NP_PARTIAL(1, 1).u_groups.gen_copy[0].u_ram.mem_q[g],
        `NP_PARTIAL(1, 1).u_groups.gen_copy[1].u_ram.mem_q[g], i[GroupLog2-1:0]);
  endfunction

  function automatic int np_dpi_counter(int row, int index);
    logic [Log2Width-1:0] i;
    i = index[Log2Width-1:0];
    np_dpi_counter = (row == 0) ? row0(i) : row1(i);
    if ((index >> Log2Width) != 0) np_dpi_counter = -1;
    if (np_dpi_counter < 0) np_dpi_counter = -1;
  endfunction
endmodule
