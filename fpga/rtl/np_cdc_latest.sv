// SPDX-License-Identifier: Apache-2.0
// Follows a value into another clock: the newest value is sent again and again as the handshake
// allows, intermediate values may be skipped, the last one always arrives. An event that happens
// between two words travels with the next one; several events may arrive as one.
module np_cdc_latest #(
  parameter int unsigned Width = 8
) (
  input  logic             src_clk_i,
  input  logic             src_rst_ni,
  input  logic [Width-1:0] value_i,
  input  logic             event_i,

  input  logic             dst_clk_i,
  input  logic             dst_rst_ni,
  output logic [Width-1:0] value_o,
  output logic             event_o  // for one cycle, together with the new value_o
);
  logic busy, send, pending_q;
  logic [Width-1:0] sent_q;
  logic valid, got_event;
  logic [Width-1:0] got_value;

  assign send = !busy && (pending_q || event_i || value_i != sent_q);

  always_ff @(posedge src_clk_i or negedge src_rst_ni) begin
    if (!src_rst_ni) begin
      pending_q <= 1'b0;
      sent_q <= '0;
    end else if (send) begin
      pending_q <= 1'b0;
      sent_q <= value_i;
    end else if (event_i) begin
      pending_q <= 1'b1;
    end
  end

  np_cdc_cmd #(
    .Width(Width + 1)
  ) u_link (
    .src_clk_i,
    .src_rst_ni,
    .send_i(send),
    .data_i({pending_q | event_i, value_i}),
    .busy_o(busy),
    .dst_clk_i,
    .dst_rst_ni,
    .valid_o(valid),
    .data_o({got_event, got_value}),
    .done_i(valid)
  );

  always_ff @(posedge dst_clk_i or negedge dst_rst_ni) begin
    if (!dst_rst_ni) begin
      value_o <= '0;
      event_o <= 1'b0;
    end else begin
      event_o <= valid && got_event;
      if (valid) value_o <= got_value;
    end
  end
endmodule
