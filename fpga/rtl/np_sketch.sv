// SPDX-License-Identifier: Apache-2.0
// The Count-Min sketch: two requests a clock, each counted in both rows, channel 0 before
// channel 1 of the same cycle. Holds the epoch number and carries the items beside the rows.
module np_sketch
  import np_pkg::*;
#(
  parameter int unsigned IdxW = 19
) (
  input  logic                      clk_i,
  input  logic                      rst_ni,
  input  logic                      init_we_i,
  input  logic [IdxW-GroupLog2-1:0] init_group_i,
  input  logic                      clear_i,  // requests at X from the next cycle on see zeros
  input  logic                      conservative_i,
  input  cnt_t                      threshold_i,
  output tag_t                      epoch_o,
  // Stage A.
  input  item_t                     item_i  [Channels],
  input  logic [IdxW-1:0]           index_i [Channels][Rows],
  // Stage X.
  input  logic                      room_i     [Channels],  // for one report, for two
  output logic                      report_o   [Channels],
  output key_t                      key_o      [Channels],
  output cnt_t                      estimate_o [Channels],
  // Stage W.
  output event_t                    event_o [Channels]
);
  tag_t  epoch_q;
  item_t m_item_q [Channels];
  item_t b_item_q [Channels];
  item_t x_item_q [Channels];
  logic  a_valid  [Channels];
  logic  x_valid  [Channels];

  logic [IdxW-1:0] row_index [Rows][Channels];
  cnt_t row_count [Rows][Channels];
  logic row_hot   [Rows][Channels];
  logic row_same  [Rows];
  logic row_inc   [Rows][Channels];

  // Stage X, by channel: channel 1's values depend on what channel 0 does.
  cnt_t       count0 [Rows];
  cnt_t       count1 [Rows];
  logic       hot0   [Rows];
  logic       hot1   [Rows];
  logic       inc0   [Rows];
  logic       inc1   [Rows];
  cnt_t       after0 [Rows];
  cnt_t       after1 [Rows];
  logic       report0, report1, refused0, refused1;
  logic [1:0] saturated0, saturated1;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) epoch_q <= tag_t'(1);  // 0 is what initialised memory holds
    else if (clear_i) epoch_q <= epoch_q + tag_t'(1);
  end

  assign epoch_o = epoch_q;

  // ---------------------------------------------------------------- items, A to X
  for (genvar c = 0; c < Channels; c++) begin : gen_item
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        m_item_q[c] <= '{verdict: VerdictNone, default: '0};
        b_item_q[c] <= '{verdict: VerdictNone, default: '0};
        x_item_q[c] <= '{verdict: VerdictNone, default: '0};
      end else begin
        m_item_q[c] <= item_i[c];
        b_item_q[c] <= m_item_q[c];
        x_item_q[c] <= b_item_q[c];
      end
    end
    assign a_valid[c] = item_i[c].verdict == VerdictCount;
    assign x_valid[c] = x_item_q[c].verdict == VerdictCount;
    assign key_o[c] = x_item_q[c].key;
  end

  // ---------------------------------------------------------------- rows
  for (genvar r = 0; r < Rows; r++) begin : gen_row
    assign row_index[r] = '{index_i[0][r], index_i[1][r]};
    assign row_inc[r] = '{inc0[r], inc1[r]};
    np_row #(
      .IdxW(IdxW)
    ) u_row (
      .clk_i,
      .rst_ni,
      .init_we_i,
      .init_group_i,
      .clear_i,
      .epoch_i(epoch_q),
      .valid_i(a_valid),
      .index_i(row_index[r]),
      .count_o(row_count[r]),
      .hot_o(row_hot[r]),
      .same_o(row_same[r]),
      .inc_i(row_inc[r]),
      .mark_i(report_o)
    );
    assign count0[r] = row_count[r][0];
    assign hot0[r] = row_hot[r][0];
    assign count1[r] = row_count[r][1] + CntW'(row_same[r] & inc0[r]);
    assign hot1[r] = row_hot[r][1] | (row_same[r] & report0);
  end

  // ---------------------------------------------------------------- X: channel 0, then channel 1
  np_update u_update0 (
    .valid_i(x_valid[0]),
    .conservative_i,
    .threshold_i,
    .count_i(count0),
    .hot_i(hot0),
    .room_i(room_i[0]),
    .inc_o(inc0),
    .count_o(after0),
    .saturated_o(saturated0),
    .estimate_o(estimate_o[0]),
    .report_o(report0),
    .refused_o(refused0)
  );
  np_update u_update1 (
    .valid_i(x_valid[1]),
    .conservative_i,
    .threshold_i,
    .count_i(count1),
    .hot_i(hot1),
    .room_i(report0 ? room_i[1] : room_i[0]),
    .inc_o(inc1),
    .count_o(after1),
    .saturated_o(saturated1),
    .estimate_o(estimate_o[1]),
    .report_o(report1),
    .refused_o(refused1)
  );
  assign report_o = '{report0, report1};

  function automatic event_t outcome(verdict_e verdict, logic beat, logic write, logic inc,
                                     cnt_t after, logic [1:0] saturated, logic report,
                                     logic refused);
    outcome = '{
      verdict: verdict,
      beat: beat,
      write: write,
      saturated: saturated,
      displaced: 1'b0,
      left: 1'b0,
      entered: inc && hist_is_edge(after),
      bin: hist_bin(after),
      report: report,
      refused: refused
    };
  endfunction

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      event_o[0] <= '{verdict: VerdictNone, default: '0};
      event_o[1] <= '{verdict: VerdictNone, default: '0};
    end else begin
      event_o[0] <= outcome(x_item_q[0].verdict, x_item_q[0].beat, x_item_q[0].write, inc0[0],
                            after0[0], saturated0, report0, refused0);
      event_o[1] <= outcome(x_item_q[1].verdict, x_item_q[1].beat, x_item_q[1].write, inc1[0],
                            after1[0], saturated1, report1, refused1);
    end
  end

`ifndef SYNTHESIS
  ReportHasRoom: assert property (@(posedge clk_i) disable iff (!rst_ni)
      (report_o[0] || report_o[1] |-> room_i[0]) and (report_o[0] && report_o[1] |-> room_i[1]))
    else $error("np_sketch: report without room in the hot list");
  SameKeySameCounter: assert property (@(posedge clk_i) disable iff (!rst_ni)
      x_valid[0] && x_valid[1] && key_o[0] == key_o[1] |-> row_same[0] && row_same[1])
    else $error("np_sketch: one unit, two counters in a row");
`endif
endmodule
