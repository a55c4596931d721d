// SPDX-License-Identifier: Apache-2.0
// Two-flop synchroniser of one bit.
module np_sync (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic d_i,
  output logic q_o
);
  logic meta_q, sync_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) {sync_q, meta_q} <= '0;
    else {sync_q, meta_q} <= {meta_q, d_i};
  end

  assign q_o = sync_q;
endmodule
