// SPDX-License-Identifier: Apache-2.0
// Two read ports and one write port: two copies of a block RAM that take the same writes.
// A technology with quad-port block RAM may put one copy here instead.
module np_ram_2r1w #(
  parameter int unsigned Depth = 1024,
  parameter int unsigned Width = 16,
  localparam int unsigned IdxW = $clog2(Depth)
) (
  input  logic             clk_i,
  input  logic             we_i,
  input  logic [IdxW-1:0]  waddr_i,
  input  logic [Width-1:0] wdata_i,
  input  logic             re_i    [2],
  input  logic [IdxW-1:0]  raddr_i [2],
  output logic [Width-1:0] rdata_o [2]
);
  for (genvar p = 0; p < 2; p++) begin : gen_copy
    np_ram_1r1w #(
      .Depth(Depth),
      .Width(Width)
    ) u_ram (
      .clk_i,
      .we_i,
      .waddr_i,
      .wdata_i,
      .re_i(re_i[p]),
      .raddr_i(raddr_i[p]),
      .rdata_o(rdata_o[p])
    );
  end
endmodule
