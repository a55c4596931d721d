// SPDX-License-Identifier: Apache-2.0
// Histogram of row 0, or of the table's entries, kept up to date. What is kept for each bin is how
// many counters are in it or a higher one, so a counter that enters a bin is one increment; only those
// of the table ever decrease. A new epoch sets all to zero. A snapshot copies all at once.
module np_hist
  import np_pkg::*;
#(
  parameter int unsigned IdxW = 19
) (
  input  logic          clk_i,
  input  logic          rst_ni,
  input  logic          clear_i,
  input  logic          snapshot_i,
  input  event_t        event_i   [Channels],
  output logic [IdxW:0] reached_o [HistBins]  // of the snapshot; bin 0: all counters
);
  typedef logic [IdxW:0] count_t;

  count_t reached_q [HistBins];
  count_t copy_q [HistBins];
  count_t prior [Channels];
  count_t step [Channels];
  logic   moved [Channels];
  logic   together;

  assign together = moved[0] && moved[1] && event_i[0].bin == event_i[1].bin;

  for (genvar c = 0; c < Channels; c++) begin : gen_before
    assign prior[c] = clear_i ? '0 : reached_q[event_i[c].bin];
    assign moved[c] = event_i[c].entered || event_i[c].left;
    assign step[c] = event_i[c].left ? '1 : count_t'(1);  // down or up by one
  end

  // In the cycle of a clear or a snapshot, the events are of the new epoch, after the snapshot.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      reached_q <= '{default: '0};
    end else begin
      if (clear_i) reached_q <= '{default: '0};
      if (moved[0]) reached_q[event_i[0].bin] <= prior[0] + step[0];
      if (moved[1]) begin
        reached_q[event_i[1].bin] <= prior[1] + step[1] + (together ? step[0] : '0);
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) copy_q <= '{default: '0};
    else if (snapshot_i) copy_q <= reached_q;
  end

  assign reached_o[0] = count_t'(1) << IdxW;
  for (genvar b = 1; b < HistBins; b++) begin : gen_out
    assign reached_o[b] = copy_q[b];
  end

`ifndef SYNTHESIS
  for (genvar c = 0; c < Channels; c++) begin : gen_one_way
    OneWay: assert property (@(posedge clk_i) disable iff (!rst_ni)
        !(event_i[c].entered && event_i[c].left))
      else $error("np_hist: a request raises a counter and lowers one");
  end
  for (genvar b = 2; b < HistBins; b++) begin : gen_assert
    // A counter passes every edge on its way.
    Ordered: assert property (@(posedge clk_i) disable iff (!rst_ni) reached_q[b] <= reached_q[b-1])
      else $error("np_hist: more counters above an edge than below it");
  end
`endif
endmodule
