// SPDX-License-Identifier: Apache-2.0
// The sets of the table: a word a set, which both channels read and write each clock at any address.
// Gives at stage X the present word of both channels' sets and takes what becomes of it. A set of
// another epoch is zero.
//
// Each channel writes a memory of its own and both read both. Which of the two words of a set is the
// newer one, a bit in each says: the second is if the bits differ. So a writer needs the other's bit
// alone, and nothing has more than one write port. If both channels are at one set, channel 1's word
// has channel 0's changes in it and is the only one that is written.
//
// Stages and hazards are np_row's: A index, M memory, B data back, X compute, W write; B takes over
// the writes of two to four cycles before, X that of the cycle before.
module np_sets
  import np_pkg::*;
#(
  parameter int unsigned SetW = 14,
  parameter int unsigned Width = 64
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic             init_we_i,
  input  logic [SetW-1:0]  init_set_i,
  input  logic             clear_i,  // requests at X from the next cycle on see zeros
  input  tag_t             epoch_i,
  // Stage A.
  input  logic             valid_i [Channels],
  input  logic [SetW-1:0]  set_i   [Channels],
  // Stage X. Channel 1's word lacks what channel 0 does in the same cycle.
  output logic [Width-1:0] word_o  [Channels],
  output logic             same_o,  // both channels are at one set
  input  logic [Width-1:0] word_i  [Channels]
);
  localparam int unsigned Kept = 3;  // W and the two cycles before it

  typedef logic [Width-1:0] word_t;
  typedef logic [SetW-1:0] set_t;
  typedef logic [Channels-1:0] newer_t;  // the bit of each memory

  // Stages M and B.
  logic   m_valid_q [Channels];
  set_t   m_set_q   [Channels];
  logic   b_valid_q [Channels];
  set_t   b_set_q   [Channels];
  // Match with the write of channel k that will be at kept position d.
  logic   b_match_q [Channels][Channels][Kept];

  // Memory data at B, [reading channel][memory].
  word_t  ram_word  [Channels][Channels];
  tag_t   ram_tag   [Channels][Channels];
  newer_t ram_newer [Channels];

  logic   b_second [Channels];
  word_t  b_word   [Channels];
  logic   b_live   [Channels];
  newer_t b_newer  [Channels];

  // Stage X.
  logic   x_valid_q [Channels];
  set_t   x_set_q   [Channels];
  word_t  x_word_q  [Channels];
  logic   x_live_q  [Channels];
  newer_t x_newer_q [Channels];
  logic   x_match_q [Channels][Channels];  // the previous cycle's request of channel k
  logic   x_same_q;
  word_t  x_word    [Channels];
  logic   x_live    [Channels];
  newer_t x_newer   [Channels];

  // Writes: 0 is stage W. now: of the present epoch.
  logic   w_valid_q [Channels][Kept];
  logic   w_now_q   [Kept];
  logic   w_we_q    [Channels];
  set_t   w_set_q   [Channels][Kept];
  word_t  w_word_q  [Channels][Kept];
  newer_t w_newer_q [Channels][Kept];
  tag_t   w_tag_q;

  for (genvar k = 0; k < Channels; k++) begin : gen_memory
    logic [TagW+Width:0] word [Channels];
    np_ram_2r1w #(
      .Depth(1 << SetW),
      .Width(1 + TagW + Width)
    ) u_words (
      .clk_i,
      .we_i(w_we_q[k] | init_we_i),
      .waddr_i(init_we_i ? init_set_i : w_set_q[k][0]),
      .wdata_i(init_we_i ? '0 : {w_newer_q[k][0][k], w_tag_q, w_word_q[k][0]}),
      .re_i(valid_i),
      .raddr_i(set_i),
      .rdata_o(word)
    );
    for (genvar c = 0; c < Channels; c++) begin : gen_read
      always_ff @(posedge clk_i) {ram_newer[c][k], ram_tag[c][k], ram_word[c][k]} <= word[c];
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
    m_set_q <= set_i;
    b_set_q <= m_set_q;
    for (int unsigned c = 0; c < Channels; c++) begin
      for (int unsigned k = 0; k < Channels; k++) begin
        b_match_q[c][k][0] <= x_valid_q[k] && x_set_q[k] == m_set_q[c];
        for (int unsigned d = 1; d < Kept; d++) begin
          b_match_q[c][k][d] <= w_valid_q[k][d-1] && w_set_q[k][d-1] == m_set_q[c];
        end
      end
    end
  end

  // ---------------------------------------------------------------- B: memory or newer write
  always_comb begin
    for (int unsigned c = 0; c < Channels; c++) begin
      b_second[c] = ^ram_newer[c];
      b_newer[c] = ram_newer[c];
      b_word[c] = b_second[c] ? ram_word[c][1] : ram_word[c][0];
      b_live[c] = (b_second[c] ? ram_tag[c][1] : ram_tag[c][0]) == epoch_i;
      // Oldest first, channel 0 before 1: the newest write wins.
      for (int unsigned e = 0; e < Kept; e++) begin
        for (int unsigned k = 0; k < Channels; k++) begin
          if (b_match_q[c][k][Kept-1-e]) begin
            b_word[c] = w_word_q[k][Kept-1-e];
            b_newer[c] = w_newer_q[k][Kept-1-e];
            b_live[c] = w_now_q[Kept-1-e];
          end
        end
      end
      if (clear_i) b_live[c] = 1'b0;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) x_valid_q <= '{default: '0};
    else x_valid_q <= b_valid_q;
  end

  always_ff @(posedge clk_i) begin
    x_set_q <= b_set_q;
    x_word_q <= b_word;
    x_live_q <= b_live;
    x_newer_q <= b_newer;
    x_same_q <= b_valid_q[0] && b_valid_q[1] && b_set_q[0] == b_set_q[1];
    for (int unsigned c = 0; c < Channels; c++) begin
      for (int unsigned k = 0; k < Channels; k++) begin
        x_match_q[c][k] <= x_valid_q[k] && x_set_q[k] == b_set_q[c];
      end
    end
  end

  // ---------------------------------------------------------------- X
  always_comb begin
    for (int unsigned c = 0; c < Channels; c++) begin
      x_word[c] = x_word_q[c];
      x_live[c] = x_live_q[c];
      x_newer[c] = x_newer_q[c];
      for (int unsigned k = 0; k < Channels; k++) begin
        if (x_match_q[c][k]) begin
          x_word[c] = w_word_q[k][0];
          x_live[c] = w_now_q[0];
          x_newer[c] = w_newer_q[k][0];
        end
      end
      word_o[c] = x_live[c] ? x_word[c] : '0;
    end
  end

  assign same_o = x_same_q;

  // ---------------------------------------------------------------- W and what is kept
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      w_valid_q <= '{default: '0};
      w_now_q <= '{default: '0};
      w_we_q <= '{default: '0};
    end else begin
      w_now_q[0] <= !clear_i;
      for (int unsigned d = 1; d < Kept; d++) w_now_q[d] <= w_now_q[d-1] && !clear_i;
      for (int unsigned c = 0; c < Channels; c++) begin
        w_valid_q[c][0] <= x_valid_q[c];
        for (int unsigned d = 1; d < Kept; d++) w_valid_q[c][d] <= w_valid_q[c][d-1];
      end
      w_we_q <= '{x_valid_q[0] && !x_same_q, x_valid_q[1]};
    end
  end

  always_ff @(posedge clk_i) begin
    w_tag_q <= epoch_i;
    for (int unsigned c = 0; c < Channels; c++) begin
      w_set_q[c][0] <= x_set_q[c];
      w_word_q[c][0] <= word_i[c];
      for (int unsigned d = 1; d < Kept; d++) begin
        w_set_q[c][d] <= w_set_q[c][d-1];
        w_word_q[c][d] <= w_word_q[c][d-1];
        w_newer_q[c][d] <= w_newer_q[c][d-1];
      end
    end
    w_newer_q[0][0] <= {x_newer[0][1], x_newer[0][1]};
    w_newer_q[1][0] <= {!x_newer[1][0], x_newer[1][0]};
  end

`ifndef SYNTHESIS
  InitAlone: assert property (@(posedge clk_i) !(init_we_i && (w_we_q[0] || w_we_q[1])))
    else $error("np_sets: a set was written during initialisation");
  // Two writes of one set in one cycle would leave open which is the newer one.
  OneWriter: assert property (@(posedge clk_i) disable iff (!rst_ni)
      w_we_q[0] && w_we_q[1] |-> w_set_q[0][0] != w_set_q[1][0])
    else $error("np_sets: both channels write one set");
  for (genvar c = 0; c < Channels; c++) begin : gen_assert
    // What is written is taken as the newest from then on.
    Newest: assert property (@(posedge clk_i) disable iff (!rst_ni)
        w_we_q[c] |-> (^w_newer_q[c][0]) == 1'(c))
      else $error("np_sets: a write would not be found");
    // Both channels at one set know the same of it.
    SameNewer: assert property (@(posedge clk_i) disable iff (!rst_ni)
        x_same_q |-> x_newer[0] == x_newer[1] && word_o[0] == word_o[1])
      else $error("np_sets: one set, two words");
  end
`endif
endmodule
