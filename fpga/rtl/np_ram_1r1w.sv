// SPDX-License-Identifier: Apache-2.0
// Block RAM: one write and one read port, one clock, data one cycle after the address.
// What a read of the word being written returns is left open: no user depends on it. With
// NP_POISON defined, simulation returns a wrong word then, so that a dependence shows.
module np_ram_1r1w #(
  parameter int unsigned Depth = 1024,
  parameter int unsigned Width = 16,
  localparam int unsigned IdxW = $clog2(Depth)
) (
  input  logic             clk_i,
  input  logic             we_i,
  input  logic [IdxW-1:0]  waddr_i,
  input  logic [Width-1:0] wdata_i,
  input  logic             re_i,
  input  logic [IdxW-1:0]  raddr_i,
  output logic [Width-1:0] rdata_o
);
  logic [Width-1:0] mem_q [Depth];

  always_ff @(posedge clk_i) begin
    if (we_i) mem_q[waddr_i] <= wdata_i;
  end

  always_ff @(posedge clk_i) begin
    if (re_i) begin
      rdata_o <= mem_q[raddr_i];
`ifdef NP_POISON
      if (we_i && waddr_i == raddr_i) rdata_o <= ~wdata_i ^ Width'(1);
`endif
    end
  end
endmodule
