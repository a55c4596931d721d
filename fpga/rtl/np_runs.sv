// SPDX-License-Identifier: Apache-2.0
// One table of the lines that were met last, an entry for the pages of one slot. A request leaves its
// line there, so nothing that is written depends on what was read: a stage to read, a stage to
// compare and write, and what a read in the cycle of a write misses is taken over. Each channel
// writes its own memory; a bit an entry tells which of them wrote last. forget_i empties the table.
module np_runs
  import np_pkg::*;
(
  input  logic  clk_i,
  input  logic  rst_ni,
  input  logic  forget_i,
  input  logic  now_i  [Channels],  // a request is looked up
  input  line_t line_i [Channels],
  input  slot_t slot_i [Channels],
  output logic  near_o [Channels]   // one cycle later: it goes on from the line that was met last
);
  localparam int unsigned Depth = 1 << CoalesceLog2;

  logic  now_q [Channels];
  line_t line_q [Channels];
  line_t line_qq [Channels];
  slot_t slot_q [Channels];
  slot_t slot_qq [Channels];
  logic  written_q [Channels];
  line_t of_channel [Channels][Channels];  // [memory of][read by]
  logic  known [Channels];
  line_t last [Channels];
  logic [Depth-1:0] known_q, by_second_q;

  function automatic logic goes_on(line_t from, line_t to);
    line_t step;
    step = to - from + line_t'(CoalesceReach);
    // Pages that follow each other may have the same entries: 0x7fff and 0x8000 do.
    goes_on = step <= line_t'(2 * CoalesceReach) && step != line_t'(CoalesceReach) &&
        (from >> (MinUnitLog2 - LineLog2)) == (to >> (MinUnitLog2 - LineLog2));
  endfunction

  for (genvar c = 0; c < Channels; c++) begin : gen_channel
    always_ff @(posedge clk_i) begin
      if (now_i[c]) begin
        line_q[c] <= line_i[c];
        slot_q[c] <= slot_i[c];
      end
      if (now_q[c]) begin
        line_qq[c] <= line_q[c];
        slot_qq[c] <= slot_q[c];
      end
    end

    np_ram_2r1w #(
      .Depth(Depth),
      .Width($bits(line_t))
    ) u_lines (
      .clk_i,
      .we_i(now_q[c]),
      .waddr_i(slot_q[c]),
      .wdata_i(line_q[c]),
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
        if (written_q[k] && slot_qq[k] == slot_q[c]) last[c] = line_qq[k];
      end
    end
    if (now_q[0] && slot_q[0] == slot_q[1]) begin
      known[1] = 1'b1;
      last[1] = line_q[0];
    end
    for (int unsigned c = 0; c < Channels; c++) begin
      near_o[c] = now_q[c] && known[c] && goes_on(last[c], line_q[c]);
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
