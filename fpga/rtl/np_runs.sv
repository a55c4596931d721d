// SPDX-License-Identifier: Apache-2.0
// One table of the pages that were met last, an entry for the pages of one slot. A request leaves its
// page there, so nothing that is written depends on what was read: a stage to read, a stage to
// compare and write, and what a read in the cycle of a write misses is taken over. Each channel
// writes its own memory; a bit an entry tells which of them wrote last. forget_i empties the table.
module np_runs
  import np_pkg::*;
(
  input  logic  clk_i,
  input  logic  rst_ni,
  input  logic  forget_i,
  input  logic  now_i  [Channels],  // a request is looked up
  input  page_t page_i [Channels],
  input  slot_t slot_i [Channels],
  output logic  same_o [Channels]   // one cycle later: its page is the one that was met last
);
  localparam int unsigned Depth = 1 << CoalesceLog2;

  logic  now_q [Channels];
  page_t page_q [Channels];
  page_t page_qq [Channels];
  slot_t slot_q [Channels];
  slot_t slot_qq [Channels];
  logic  written_q [Channels];
  page_t of_channel [Channels][Channels];  // [memory of][read by]
  logic  known [Channels];
  page_t last [Channels];
  logic [Depth-1:0] known_q, by_second_q;

  for (genvar c = 0; c < Channels; c++) begin : gen_channel
    always_ff @(posedge clk_i) begin
      if (now_i[c]) begin
        page_q[c] <= page_i[c];
        slot_q[c] <= slot_i[c];
      end
      if (now_q[c]) begin
        page_qq[c] <= page_q[c];
        slot_qq[c] <= slot_q[c];
      end
    end

    np_ram_2r1w #(
      .Depth(Depth),
      .Width($bits(page_t))
    ) u_pages (
      .clk_i,
      .we_i(now_q[c]),
      .waddr_i(slot_q[c]),
      .wdata_i(page_q[c]),
      .re_i(now_i),
      .raddr_i(slot_i),
      .rdata_o(of_channel[c])
    );
  end

  always_comb begin
    for (int unsigned c = 0; c < Channels; c++) begin
      known[c] = known_q[slot_q[c]];
      last[c] = of_channel[by_second_q[slot_q[c]]][c];
      for (int unsigned k = 0; k < Channels; k++) begin
        if (written_q[k] && slot_qq[k] == slot_q[c]) last[c] = page_qq[k];
      end
    end
    if (now_q[0] && slot_q[0] == slot_q[1]) begin
      known[1] = 1'b1;
      last[1] = page_q[0];
    end
    for (int unsigned c = 0; c < Channels; c++) begin
      same_o[c] = now_q[c] && known[c] && last[c] == page_q[c];
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      now_q <= '{default: 1'b0};
      written_q <= '{default: 1'b0};
      known_q <= '0;
      by_second_q <= '0;
    end else begin
      now_q <= now_i;
      for (int unsigned c = 0; c < Channels; c++) begin
        written_q[c] <= now_q[c] && !forget_i;
        if (now_q[c]) begin
          known_q[slot_q[c]] <= 1'b1;
          by_second_q[slot_q[c]] <= c == 1;
        end
      end
      if (forget_i) known_q <= '0;
    end
  end
endmodule
