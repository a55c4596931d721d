// SPDX-License-Identifier: Apache-2.0
// The card as the cocotb benches drive it: a small one, with a player that puts requests from a
// file on both channels, one pair a clock, while the bench works on the registers.
module np_tb
  import np_pkg::*;
#(
  parameter bit Tagged = 1'b0,
  parameter int unsigned Log2Width = 8,
  parameter int unsigned RingSize = 16,
  parameter int unsigned CyclesPer100us = 40
) (
  input  logic        mem_clk_i,
  input  logic        reg_clk_i,
  input  logic        rst_ni,
  input  logic [31:0] play_count_i,  // pairs in the file
  input  logic        load_i,        // rising: read the file
  input  logic        play_i,        // rising: play it
  output logic        playing_o,
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
  localparam int unsigned MaxPairs = 1 << 16;

  logic req_valid [Channels];
  logic req_write [Channels];
  addr_t req_addr [Channels];

  // verilator coverage_off
  logic [127:0] script [MaxPairs];
  logic [31:0] next_q;
  logic play_q;
  logic [127:0] pair;
  string path;

  initial if (!$value$plusargs("script=%s", path)) path = "script.hex";

  always @(posedge load_i) $readmemh(path, script, 0, int'(play_count_i) - 1);

  always_ff @(posedge mem_clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      playing_o <= 1'b0;
      play_q <= 1'b0;
      next_q <= '0;
    end else begin
      play_q <= play_i;
      if (play_i && !play_q) begin
        playing_o <= 1'b1;
        next_q <= '0;
      end else if (playing_o) begin
        next_q <= next_q + 32'd1;
        if (next_q == play_count_i - 32'd1) playing_o <= 1'b0;
      end
    end
  end

  assign pair = script[next_q[15:0]];
  for (genvar c = 0; c < Channels; c++) begin : gen_channel
    assign req_valid[c] = playing_o && !pair[64*c+63];
    assign req_write[c] = pair[64*c+62];
    assign req_addr[c] = pair[64*c+:AddrW];
  end
  // verilator coverage_on

  neoprof #(
    .Tagged(Tagged),
    .Log2Width(Log2Width),
    .RingSize(RingSize),
    .CyclesPer100us(CyclesPer100us)
  ) u_card (
    .req_valid_i(req_valid),
    .req_write_i(req_write),
    .req_addr_i(req_addr),
    .*
  );
endmodule
