// SPDX-License-Identifier: Apache-2.0
// The card as the library Verilates it: the whole card, and a function that lets tests look at a
// counter of the sketch. Nothing here is synthesised.
`define NP_SETS u_card.u_core.gen_table.u_table.u_sets
`define NP_PARTIAL(r, k) u_card.u_core.gen_sketch.u_sketch.gen_row[r].u_row.gen_partial[k].u_partial

module np_sim_card
  import np_pkg::*;
#(
`ifdef NP_TABLE
  parameter bit Tagged = 1'b1,
  parameter int unsigned Log2Width = 17,
`else
  parameter bit Tagged = 1'b0,
  parameter int unsigned Log2Width = 19,
`endif
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
    .Tagged(Tagged),
    .Log2Width(Log2Width),
    .RingSize(RingSize),
    .CyclesPer100us(CyclesPer100us)
  ) u_card (
    .*
  );

  // Value of counter [row][index], or -1 if the copies of a memory differ or there is no such
  // index. Names in the hierarchy take constant indexes only, so the two rows and two partials are written out.
  export "DPI-C" function np_dpi_counter;

`ifdef NP_TABLE
  localparam int unsigned SetW = Log2Width - WaysLog2;
  localparam int unsigned UnitTagW = KeyW - SetW;

  typedef struct packed {
    logic                          newer;
    tag_t                          epoch;
    logic                          outside_valid;
    touched_t                      outside;
    logic [UnitTagW-1:0]           outside_tag;
    logic [Ways-1:0][UnitTagW-1:0] tags;
    way_t [Ways-1:0]               ways;
  } set_t;

  // Rows 0 to 4 are of an entry, 5 to 9 of the unit outside of its set: np_table_model.h.
  function automatic int peek(int row, logic valid, cnt_t count, logic hot,
                              logic [UnitTagW-1:0] unit_tag, touched_t touched);
    if (!valid) peek = 0;
    else begin
      unique case (row % 5)
        0: peek = int'(count);
        1: peek = int'({1'b0, hot, 30'(unit_tag)});
        2: peek = int'({1'b0, touched.parts[30:0]});
        3: peek = int'({1'b0, touched.parts[61:31]});
        default: peek = int'({14'd0, touched.parts[63:62], 2'd0, touched.seen, touched.window});
      endcase
    end
  endfunction

  function automatic int np_dpi_counter(int row, int index);
    logic [SetW-1:0] i;
    set_t first, second, set;
    way_t way;
    i = index[Log2Width-1:WaysLog2];
    first = `NP_SETS.gen_memory[0].u_words.gen_copy[0].u_ram.mem_q[i];
    second = `NP_SETS.gen_memory[1].u_words.gen_copy[0].u_ram.mem_q[i];
    set = (first.newer ^ second.newer) ? second : first;
    way = set.ways[index[WaysLog2-1:0]];
    if (first != `NP_SETS.gen_memory[0].u_words.gen_copy[1].u_ram.mem_q[i] ||
        second != `NP_SETS.gen_memory[1].u_words.gen_copy[1].u_ram.mem_q[i] ||
        (index >> Log2Width) != 0) np_dpi_counter = -1;
    else if (set.epoch != u_card.u_core.gen_table.u_table.epoch_q) np_dpi_counter = 0;
    else if (row < 5) begin
      np_dpi_counter = peek(row, way.count != '0, way.count, way.hot,
                            set.tags[index[WaysLog2-1:0]], way.touched);
    end else begin
      np_dpi_counter = peek(row, set.outside_valid, cnt_t'(1), 1'b0, set.outside_tag, set.outside);
    end
  endfunction
`else
  typedef logic [CntW:0] word_t;
  typedef logic [TagW+GroupSize-1:0] group_word_t;

  function automatic int part(word_t word, word_t copy, group_word_t group, group_word_t group_copy,
                              logic [GroupLog2-1:0] slot);
    if (word != copy || group != group_copy) part = -65536;
    else if (group[GroupSize+:TagW] == u_card.u_core.gen_sketch.u_sketch.epoch_q &&
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
`endif
endmodule
