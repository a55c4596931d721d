// SPDX-License-Identifier: Apache-2.0
// A word from one clock to another with a two-phase handshake. The source holds the word while
// its request toggle travels (two flops), so that the word is stable when the destination takes
// it; busy_o falls when the destination's acknowledge toggle is back.
module np_cdc_cmd #(
  parameter int unsigned Width = 8
) (
  input  logic             src_clk_i,
  input  logic             src_rst_ni,
  input  logic             send_i,  // only while busy_o is 0
  input  logic [Width-1:0] data_i,
  output logic             busy_o,

  input  logic             dst_clk_i,
  input  logic             dst_rst_ni,
  output logic             valid_o,  // until done_i
  output logic [Width-1:0] data_o,
  input  logic             done_i
);
  logic req_q, ack_sync;
  logic ack_q, req_sync;
  logic [Width-1:0] data_q;

  always_ff @(posedge src_clk_i or negedge src_rst_ni) begin
    if (!src_rst_ni) begin
      req_q <= 1'b0;
      data_q <= '0;
    end else if (send_i && !busy_o) begin
      req_q <= !req_q;
      data_q <= data_i;
    end
  end

  np_sync u_ack_sync (.clk_i(src_clk_i), .rst_ni(src_rst_ni), .d_i(ack_q), .q_o(ack_sync));
  assign busy_o = req_q != ack_sync;

  np_sync u_req_sync (.clk_i(dst_clk_i), .rst_ni(dst_rst_ni), .d_i(req_q), .q_o(req_sync));

  always_ff @(posedge dst_clk_i or negedge dst_rst_ni) begin
    if (!dst_rst_ni) ack_q <= 1'b0;
    else if (valid_o && done_i) ack_q <= !ack_q;
  end

  assign valid_o = req_sync != ack_q;
  assign data_o = data_q;

`ifndef SYNTHESIS
  SendWhenFree: assert property (@(posedge src_clk_i) disable iff (!src_rst_ni)
      send_i |-> !busy_o)
    else $error("np_cdc_cmd: a word was sent while the last one was on its way");
  DoneWhenValid: assert property (@(posedge dst_clk_i) disable iff (!dst_rst_ni)
      done_i |-> valid_o)
    else $error("np_cdc_cmd: done without a word");
`endif
endmodule
