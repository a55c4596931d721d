// SPDX-License-Identifier: Apache-2.0
// H3 hash of one channel's unit numbers, one index a row: the XOR of the seed words whose key
// bit is set. Two cycles, 16 key bits each.
module np_hash
  import np_pkg::*;
#(
  parameter int unsigned IdxW = 19
) (
  input  logic            clk_i,
  input  logic            rst_ni,
  input  item_t           item_i,
  output item_t           item_o,
  output logic [IdxW-1:0] index_o [Rows]
);
  localparam int unsigned Half = KeyW / 2;

  item_t item_q, item_qq;
  logic [IdxW-1:0] part_d [Rows];
  logic [IdxW-1:0] part_q [Rows];
  logic [IdxW-1:0] index_d [Rows];

  always_comb begin
    for (int unsigned r = 0; r < Rows; r++) begin
      part_d[r] = '0;
      index_d[r] = part_q[r];
      for (int unsigned b = 0; b < Half; b++) begin
        part_d[r] ^= np_seeds_pkg::Seeds[r][b][IdxW-1:0] & {IdxW{item_i.key[b]}};
        index_d[r] ^= np_seeds_pkg::Seeds[r][Half+b][IdxW-1:0] & {IdxW{item_q.key[Half+b]}};
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      item_q <= '{verdict: VerdictNone, default: '0};
      item_qq <= '{verdict: VerdictNone, default: '0};
    end else begin
      item_q <= item_i;
      item_qq <= item_q;
    end
  end

  always_ff @(posedge clk_i) begin
    part_q <= part_d;
    index_o <= index_d;
  end

  assign item_o = item_qq;
endmodule
