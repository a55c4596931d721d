// SPDX-License-Identifier: Apache-2.0
// Reset asserted at once, released on the clock: two flops.
module np_rst_sync (
  input  logic clk_i,
  input  logic rst_ni,
  output logic rst_no
);
  logic meta_q, sync_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) {sync_q, meta_q} <= '0;
    else {sync_q, meta_q} <= {meta_q, 1'b1};
  end

  assign rst_no = sync_q;
endmodule
