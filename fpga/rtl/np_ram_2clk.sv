// SPDX-License-Identifier: Apache-2.0
// Block RAM between two clocks: one write port, one read port, data one read clock after the
// address. The word being written must not be read: users see to that with a pointer or an
// enable that crosses after the data.
module np_ram_2clk #(
  parameter int unsigned Depth = 1024,
  parameter int unsigned Width = 64,
  localparam int unsigned IdxW = $clog2(Depth)
) (
  input  logic             wclk_i,
  input  logic             we_i,
  input  logic [IdxW-1:0]  waddr_i,
  input  logic [Width-1:0] wdata_i,
  input  logic             rclk_i,
  input  logic             re_i,
  input  logic [IdxW-1:0]  raddr_i,
  output logic [Width-1:0] rdata_o
);
  logic [Width-1:0] mem_q [Depth];

  always_ff @(posedge wclk_i) begin
    if (we_i) mem_q[waddr_i] <= wdata_i;
  end

  always_ff @(posedge rclk_i) begin
    if (re_i) rdata_o <= mem_q[raddr_i];
  end
endmodule
