// SPDX-License-Identifier: Apache-2.0
// The parts of the register map that are not registers of np_regs: snapshot, histogram, range
// bitmap, hot list. Each access is answered after a fixed number of cycles, whatever the memory
// clock does. Holds the range bitmap: one copy for software, one for each channel.
module np_host_mem
  import np_pkg::*;
#(
  parameter int unsigned IdxW = 19,
  parameter int unsigned RingSize = 4096,
  localparam int unsigned PtrW = $clog2(RingSize)
) (
  input  logic              clk_i,
  input  logic              rst_ni,
  input  np_regs_pkg::snapshot_block__external__out_t  snapshot_i,
  output np_regs_pkg::snapshot_block__external__in_t   snapshot_o,
  input  np_regs_pkg::histogram_block__external__out_t histogram_i,
  output np_regs_pkg::histogram_block__external__in_t  histogram_o,
  input  np_regs_pkg::range_mem__external__out_t       range_i,
  output np_regs_pkg::range_mem__external__in_t        range_o,
  input  np_regs_pkg::hotlist_mem__external__out_t     hotlist_i,
  output np_regs_pkg::hotlist_mem__external__in_t      hotlist_o,
  input  logic              locked_i,
  output logic              range_locked_o,  // a write of the range bitmap was refused
  output logic              ignored_o,       // a write of a read-only block was ignored
  // Snapshot, stable while read.
  input  logic [63:0]       stat_i    [StatWords],
  input  logic [IdxW:0]     reached_i [HistBins],
  // Hot list.
  output logic              slot_re_o,
  output logic [PtrW-1:0]   slot_o,
  input  logic [EntryW-1:0] entry_i,
  // Range bitmap, memory clock.
  input  logic              mem_clk_i,
  input  logic              range_re_i   [Channels],
  input  logic [5:0]        range_word_i [Channels],
  output logic [63:0]       range_bits_o [Channels]
);
  typedef enum logic [1:0] {PartSnapshot, PartHistogram, PartRange, PartHotlist} part_e;

  part_e part_d, part_q;
  logic any_req, write_d, write_q, waiting_q;
  logic [11:0] word_d, word_q;
  logic [63:0] wdata_q, biten_q, data_d, data_q, range_word, range_new;
  logic [2:0] step_q;
  logic start, range_write;
  logic [6:0] init_q;
  logic range_we;
  logic [5:0] range_waddr;
  logic [63:0] range_wdata;
  logic [IdxW:0] above;
  logic beyond;

  assign any_req = snapshot_i.req || histogram_i.req || range_i.req || hotlist_i.req;

  always_comb begin
    part_d = PartSnapshot;
    word_d = 12'(snapshot_i.addr[7:3]);
    write_d = snapshot_i.req_is_wr;
    if (histogram_i.req) begin
      part_d = PartHistogram;
      word_d = 12'(histogram_i.addr[8:3]);
    end
    if (range_i.req) begin
      part_d = PartRange;
      word_d = 12'(range_i.addr[8:3]);
    end
    if (hotlist_i.req) begin
      part_d = PartHotlist;
      word_d = hotlist_i.addr[14:3];
    end
  end

  // Steps: 0 address to the memories, 1 data back and write, 2 answer. The bitmap is zeroed
  // after a reset; accesses wait until then.
  assign start = waiting_q && init_q[6];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      waiting_q <= 1'b0;
      step_q <= '0;
      init_q <= '0;
      part_q <= PartSnapshot;
      write_q <= 1'b0;
      word_q <= '0;
      wdata_q <= '0;
      biten_q <= '0;
      data_q <= '0;
    end else begin
      if (!init_q[6]) init_q <= init_q + 7'd1;
      if (any_req) begin
        waiting_q <= 1'b1;
        part_q <= part_d;
        write_q <= write_d;
        word_q <= word_d;
        wdata_q <= range_i.wr_data;
        biten_q <= range_i.wr_biten;
      end else if (start) begin
        waiting_q <= 1'b0;
      end
      step_q <= {step_q[1:0], start};
      if (step_q[1]) data_q <= data_d;
    end
  end

  assign above = (word_q[5:0] == 6'd63) ? '0 : reached_i[word_q[5:0] + 6'd1];
  assign beyond = 32'(word_q) >= RingSize;

  always_comb begin
    unique case (part_q)
      PartSnapshot: data_d = stat_i[word_q[4:0]];
      PartHistogram: data_d = 64'(reached_i[word_q[5:0]] - above);
      PartRange: data_d = range_word;
      default: data_d = beyond ? '0 : entry_i;
    endcase
  end

  // ---------------------------------------------------------------- range bitmap
  assign range_write = step_q[1] && write_q && part_q == PartRange;
  assign range_new = (range_word & ~biten_q) | (wdata_q & biten_q);
  assign range_we = !init_q[6] || (range_write && !locked_i);
  assign range_waddr = init_q[6] ? word_q[5:0] : init_q[5:0];
  assign range_wdata = init_q[6] ? range_new : '0;
  assign range_locked_o = range_write && locked_i;
  assign ignored_o = step_q[1] && write_q && part_q != PartRange;

  np_ram_2clk #(
    .Depth(RangeWords),
    .Width(64)
  ) u_range_host (
    .wclk_i(clk_i),
    .we_i(range_we),
    .waddr_i(range_waddr),
    .wdata_i(range_wdata),
    .rclk_i(clk_i),
    .re_i(step_q[0]),
    .raddr_i(word_q[5:0]),
    .rdata_o(range_word)
  );

  for (genvar c = 0; c < Channels; c++) begin : gen_range
    np_ram_2clk #(
      .Depth(RangeWords),
      .Width(64)
    ) u_range (
      .wclk_i(clk_i),
      .we_i(range_we),
      .waddr_i(range_waddr),
      .wdata_i(range_wdata),
      .rclk_i(mem_clk_i),
      .re_i(range_re_i[c]),
      .raddr_i(range_word_i[c]),
      .rdata_o(range_bits_o[c])
    );
  end

  assign slot_re_o = step_q[0];
  assign slot_o = word_q[PtrW-1:0];

  // ---------------------------------------------------------------- answers
  logic ack;
  assign ack = step_q[2];

  assign snapshot_o = '{rd_ack: ack && !write_q && part_q == PartSnapshot, rd_data: data_q,
                        wr_ack: ack && write_q && part_q == PartSnapshot};
  assign histogram_o = '{rd_ack: ack && !write_q && part_q == PartHistogram, rd_data: data_q,
                         wr_ack: ack && write_q && part_q == PartHistogram};
  assign range_o = '{rd_ack: ack && !write_q && part_q == PartRange, rd_data: data_q,
                     wr_ack: ack && write_q && part_q == PartRange};
  assign hotlist_o = '{rd_ack: ack && !write_q && part_q == PartHotlist, rd_data: data_q,
                       wr_ack: ack && write_q && part_q == PartHotlist};

`ifndef SYNTHESIS
  OneAtATime: assert property (@(posedge clk_i) disable iff (!rst_ni)
      any_req |-> !waiting_q && step_q == '0)
    else $error("np_host_mem: a second access came before the first was answered");
`endif
endmodule
