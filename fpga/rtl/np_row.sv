// SPDX-License-Identifier: Apache-2.0
// One row of the sketch: W counters, each the sum of two partial counters, one written by each
// channel. Gives at stage X the exact value of both channels' counters and takes their increments.
//
// Stages: A index to the memories, M memory, B data back, X compute, W write. A word read at A
// lacks what requests computed at X one to four cycles before this request's own X. B takes over
// the writes two to four cycles old (W, and two older ones kept here); X takes over the one of
// the previous cycle; the sketch adds channel 0's to channel 1's in the same cycle.
module np_row
  import np_pkg::*;
#(
  parameter int unsigned IdxW = 19
) (
  input  logic                      clk_i,
  input  logic                      rst_ni,
  input  logic                      init_we_i,
  input  logic [IdxW-GroupLog2-1:0] init_group_i,
  input  logic                      clear_i,  // requests at X from the next cycle on see zeros
  input  tag_t                      epoch_i,
  // Stage A.
  input  logic                      valid_i [Channels],
  input  logic [IdxW-1:0]           index_i [Channels],
  // Stage X. Channel 1's count and hot mark lack what channel 0 does in the same cycle.
  output cnt_t                      count_o [Channels],
  output logic                      hot_o   [Channels],
  output logic                      same_o,   // both channels are at one counter
  input  logic                      inc_i   [Channels],
  input  logic                      mark_i  [Channels]
);
  localparam int unsigned Kept = 3;  // W and the two cycles before it

  // Stages M and B.
  logic            m_valid_q [Channels];
  logic [IdxW-1:0] m_index_q [Channels];
  logic            b_valid_q [Channels];
  logic [IdxW-1:0] b_index_q [Channels];
  // Match with the write of channel k that will be at kept position d: counter, group.
  logic            b_match_q [Channels][Channels][Kept];
  logic            b_group_q [Channels][Channels][Kept];

  // Memory data at B, [reading channel][partial].
  cnt_t   ram_count [Channels][Channels];
  logic   ram_hot   [Channels][Channels];
  tag_t   ram_tag   [Channels][Channels];
  group_t ram_live  [Channels][Channels];

  cnt_t   b_count [Channels][Channels];
  logic   b_hot   [Channels];
  group_t b_live  [Channels][Channels];
  group_t b_own   [Channels];

  // Stage X.
  logic            x_valid_q [Channels];
  logic [IdxW-1:0] x_index_q [Channels];
  cnt_t            x_count_q [Channels][Channels];
  logic            x_hot_q   [Channels];
  group_t          x_own_q   [Channels];            // counters in use in the own partial's group
  logic            x_match_q [Channels][Channels];  // the previous cycle's request of channel k
  logic            x_group_q [Channels];            // of the own channel: same group
  logic            x_same_q;
  cnt_t            x_count   [Channels][Channels];
  group_t          x_own     [Channels];

  // Writes: 0 is stage W. now: of the present epoch.
  logic            w_valid_q [Channels][Kept];
  logic            w_now_q   [Kept];
  logic [IdxW-1:0] w_index_q [Channels][Kept];
  cnt_t            w_count_q [Channels][Kept];
  logic            w_hot_q   [Channels][Kept];
  group_t          w_live_q  [Channels][Kept];
  tag_t            w_tag_q;

  function automatic logic same_group(logic [IdxW-1:0] a, logic [IdxW-1:0] b);
    same_group = (a ^ b) < IdxW'(GroupSize);
  endfunction

  for (genvar k = 0; k < Channels; k++) begin : gen_partial
    cnt_t   count [Channels];
    logic   hot   [Channels];
    tag_t   tag   [Channels];
    group_t live  [Channels];

    np_partial #(
      .IdxW(IdxW)
    ) u_partial (
      .clk_i,
      .init_we_i,
      .init_group_i,
      .we_i(w_valid_q[k][0]),
      .windex_i(w_index_q[k][0]),
      .wcount_i(w_count_q[k][0]),
      .whot_i(w_hot_q[k][0]),
      .wtag_i(w_tag_q),
      .wvalid_i(w_live_q[k][0]),
      .re_i(valid_i),
      .rindex_i(index_i),
      .count_o(count),
      .hot_o(hot),
      .tag_o(tag),
      .valid_o(live)
    );
    for (genvar c = 0; c < Channels; c++) begin : gen_data
      assign ram_count[c][k] = count[c];
      assign ram_hot[c][k] = hot[c];
      assign ram_tag[c][k] = tag[c];
      assign ram_live[c][k] = live[c];
    end
  end

  // ---------------------------------------------------------------- A to M to B
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      m_valid_q <= '{default: '0};
      b_valid_q <= '{default: '0};
    end else begin
      m_valid_q <= valid_i;
      b_valid_q <= m_valid_q;
    end
  end

  always_ff @(posedge clk_i) begin
    m_index_q <= index_i;
    b_index_q <= m_index_q;
    for (int unsigned c = 0; c < Channels; c++) begin
      for (int unsigned k = 0; k < Channels; k++) begin
        b_match_q[c][k][0] <= x_valid_q[k] && x_index_q[k] == m_index_q[c];
        b_group_q[c][k][0] <= x_valid_q[k] && same_group(x_index_q[k], m_index_q[c]);
        for (int unsigned d = 1; d < Kept; d++) begin
          b_match_q[c][k][d] <= w_valid_q[k][d-1] && w_index_q[k][d-1] == m_index_q[c];
          b_group_q[c][k][d] <= w_valid_q[k][d-1] && same_group(w_index_q[k][d-1], m_index_q[c]);
        end
      end
    end
  end

  // ---------------------------------------------------------------- B: memory or newer write
  always_comb begin
    for (int unsigned c = 0; c < Channels; c++) begin
      b_hot[c] = 1'b0;
      for (int unsigned k = 0; k < Channels; k++) begin
        b_count[c][k] = ram_count[c][k];
        b_live[c][k] = (ram_tag[c][k] == epoch_i) ? ram_live[c][k] : '0;
        // Oldest first: the newest write wins.
        for (int unsigned e = 0; e < Kept; e++) begin
          if (b_group_q[c][k][Kept-1-e]) begin
            b_live[c][k] = w_now_q[Kept-1-e] ? w_live_q[k][Kept-1-e] : '0;
          end
          if (b_match_q[c][k][Kept-1-e]) b_count[c][k] = w_count_q[k][Kept-1-e];
        end
        if (clear_i) b_live[c][k] = '0;
        if (!b_live[c][k][b_index_q[c][GroupLog2-1:0]]) b_count[c][k] = '0;
      end
      for (int unsigned k = 0; k < Channels; k++) begin
        logic hot;
        hot = ram_hot[c][k];
        for (int unsigned e = 0; e < Kept; e++) begin
          if (b_match_q[c][k][Kept-1-e]) hot = w_hot_q[k][Kept-1-e];
        end
        b_hot[c] |= hot && b_live[c][k][b_index_q[c][GroupLog2-1:0]];
      end
      b_own[c] = b_live[c][c];
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) x_valid_q <= '{default: '0};
    else x_valid_q <= b_valid_q;
  end

  always_ff @(posedge clk_i) begin
    x_index_q <= b_index_q;
    x_count_q <= b_count;
    x_hot_q <= b_hot;
    x_own_q <= b_own;
    x_same_q <= b_valid_q[0] && b_valid_q[1] && b_index_q[0] == b_index_q[1];
    for (int unsigned c = 0; c < Channels; c++) begin
      x_group_q[c] <= x_valid_q[c] && same_group(x_index_q[c], b_index_q[c]);
      for (int unsigned k = 0; k < Channels; k++) begin
        x_match_q[c][k] <= x_valid_q[k] && x_index_q[k] == b_index_q[c];
      end
    end
  end

  // ---------------------------------------------------------------- X
  always_comb begin
    for (int unsigned c = 0; c < Channels; c++) begin
      hot_o[c] = x_hot_q[c];
      for (int unsigned k = 0; k < Channels; k++) begin
        x_count[c][k] = x_count_q[c][k];
        if (x_match_q[c][k] && w_now_q[0]) begin
          x_count[c][k] = w_count_q[k][0];
          hot_o[c] |= w_hot_q[k][0];
        end
      end
      count_o[c] = x_count[c][0] + x_count[c][1];
      x_own[c] = (x_group_q[c] && w_now_q[0]) ? w_live_q[c][0] : x_own_q[c];
      x_own[c][x_index_q[c][GroupLog2-1:0]] = 1'b1;
    end
  end

  assign same_o = x_same_q;

  // ---------------------------------------------------------------- W and what is kept
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      w_valid_q <= '{default: '0};
      w_now_q <= '{default: '0};
    end else begin
      w_now_q[0] <= !clear_i;
      for (int unsigned d = 1; d < Kept; d++) w_now_q[d] <= w_now_q[d-1] && !clear_i;
      for (int unsigned c = 0; c < Channels; c++) begin
        w_valid_q[c][0] <= x_valid_q[c];
        for (int unsigned d = 1; d < Kept; d++) w_valid_q[c][d] <= w_valid_q[c][d-1];
      end
    end
  end

  always_ff @(posedge clk_i) begin
    w_tag_q <= epoch_i;
    for (int unsigned c = 0; c < Channels; c++) begin
      w_index_q[c][0] <= x_index_q[c];
      w_count_q[c][0] <= x_count[c][c] + CntW'(inc_i[c]);
      w_hot_q[c][0] <= hot_o[c] | mark_i[c];
      w_live_q[c][0] <= x_own[c];
      for (int unsigned d = 1; d < Kept; d++) begin
        w_index_q[c][d] <= w_index_q[c][d-1];
        w_count_q[c][d] <= w_count_q[c][d-1];
        w_hot_q[c][d] <= w_hot_q[c][d-1];
        w_live_q[c][d] <= w_live_q[c][d-1];
      end
    end
  end

`ifndef SYNTHESIS
  for (genvar c = 0; c < Channels; c++) begin : gen_assert
    // A counter stops at its maximum, so the sum of its parts always fits.
    SumFits: assert property (@(posedge clk_i) disable iff (!rst_ni)
        x_valid_q[c] |-> {1'b0, x_count[c][0]} + {1'b0, x_count[c][1]} <= {1'b0, {CntW{1'b1}}})
      else $error("np_row: parts of a counter add up to more than its maximum");
    NoWrap: assert property (@(posedge clk_i) disable iff (!rst_ni)
        inc_i[c] |-> x_valid_q[c] && count_o[c] != '1)
      else $error("np_row: increment of a counter at its maximum, or without a request");
    // What is found of the present epoch only grows.
    OwnGroup: assert property (@(posedge clk_i) disable iff (!rst_ni)
        x_match_q[c][c] && w_now_q[0] && x_valid_q[c] |-> (w_live_q[c][0] & ~x_own[c]) == '0)
      else $error("np_row: a counter of this epoch was lost from its group");
  end
`endif
endmodule
