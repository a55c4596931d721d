// SPDX-License-Identifier: Apache-2.0
// Error bound from a snapshot: the bin of the rank-th largest counter of row 0. Looks at one bin
// a cycle, from the highest down.
module np_error_bound
  import np_pkg::*;
#(
  parameter int unsigned IdxW = 19
) (
  input  logic          clk_i,
  input  logic          rst_ni,
  input  logic          start_i,
  input  logic [31:0]   rank_i,
  input  logic [IdxW:0] reached_i [HistBins],
  output logic          busy_o,
  output logic          bad_rank_o,  // at start
  output logic          valid_o,
  output bin_t          bin_o
);
  logic busy_q, valid_q;
  bin_t bin_q;

  assign bad_rank_o = start_i && (rank_i == '0 || rank_i > 32'(1 << IdxW));

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      busy_q <= 1'b0;
      valid_q <= 1'b0;
      bin_q <= '0;
    end else if (start_i) begin
      busy_q <= !bad_rank_o;
      valid_q <= 1'b0;
      bin_q <= bad_rank_o ? '0 : '1;
    end else if (busy_q) begin
      if (32'(reached_i[bin_q]) >= rank_i || bin_q == '0) begin
        busy_q <= 1'b0;
        valid_q <= 1'b1;
      end else begin
        bin_q <= bin_q - bin_t'(1);
      end
    end
  end

  assign busy_o = busy_q;
  assign valid_o = valid_q;
  assign bin_o = bin_q;
endmodule
