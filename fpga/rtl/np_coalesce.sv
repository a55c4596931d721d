// SPDX-License-Identifier: Apache-2.0
// Makes one request of a run: a program that reads a page line by line sends a request for each of
// its 64 lines and uses it once. A request goes on with a run if the last request that met its
// entry was to a line no more than Reach lines away, before or after; not if it was to the same.
// The first of a run passes, the others get the verdict Run.
//
// One entry for the pages of one remainder: 2^Log2 entries, each the line of the last request,
// chosen by the page's number, its bytes XORed, so that neighbours have different ones. A request
// always leaves its line there, so nothing that is written depends on what was read: a stage to
// read, a stage to compare and write, and what a read in the cycle of a write misses is taken over.
// Each channel writes its own memory; a bit an entry tells which of them wrote last.
// restart_i forgets all runs. Two cycles from item to item, whether it is in use or not.
module np_coalesce
  import np_pkg::*;
#(
  parameter int unsigned Log2 = CoalesceLog2
) (
  input  logic  clk_i,
  input  logic  rst_ni,
  input  logic  restart_i,
  input  logic  coalesce_i,
  input  item_t item_i [Channels],
  input  line_t line_i [Channels],
  output item_t item_o [Channels]
);
  localparam int unsigned Depth = 1 << Log2;
  localparam int unsigned PageLines = MinUnitLog2 - LineLog2;

  typedef logic [Log2-1:0] slot_t;

  // What the compare stage knows of a request, and what it knew one cycle before.
  logic  now [Channels];
  logic  now_q [Channels];
  line_t line_q [Channels];
  line_t line_qq [Channels];
  slot_t slot [Channels];
  slot_t slot_q [Channels];
  slot_t slot_qq [Channels];
  item_t item_q [Channels];
  item_t item_d [Channels];
  item_t item_qq [Channels];
  logic  write [Channels];
  logic  write_q [Channels];
  line_t of_channel [Channels][Channels];  // [memory of][read by]
  logic  known [Channels];
  line_t last [Channels];
  logic [Depth-1:0] known_q, by_second_q;

  function automatic slot_t slot_of(line_t line);
    logic [KeyW-1:0] page;
    page = KeyW'(line >> PageLines);
    slot_of = page[7:0] ^ page[15:8] ^ page[23:16] ^ page[31:24];
  endfunction

  function automatic logic goes_on(line_t from, line_t to);
    line_t step;
    step = to - from + line_t'(CoalesceReach);
    goes_on = step <= line_t'(2 * CoalesceReach) && step != line_t'(CoalesceReach);
  endfunction

  // ---------------------------------------------------------------- read
  for (genvar c = 0; c < Channels; c++) begin : gen_read
    assign now[c] = coalesce_i && item_i[c].verdict == VerdictCount;
    assign slot[c] = slot_of(line_i[c]);

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        now_q[c] <= 1'b0;
        item_q[c] <= '{verdict: VerdictNone, default: '0};
      end else begin
        now_q[c] <= now[c] && !restart_i;
        item_q[c] <= item_i[c];
      end
    end

    always_ff @(posedge clk_i) begin
      if (now[c]) begin
        line_q[c] <= line_i[c];
        slot_q[c] <= slot[c];
      end
    end

    np_ram_2r1w #(
      .Depth(Depth),
      .Width($bits(line_t))
    ) u_lines (
      .clk_i,
      .we_i(write[c]),
      .waddr_i(slot_q[c]),
      .wdata_i(line_q[c]),
      .re_i(now),
      .raddr_i(slot),
      .rdata_o(of_channel[c])
    );
  end

  // ---------------------------------------------------------------- compare and write
  assign write = now_q;

  always_comb begin
    for (int unsigned c = 0; c < Channels; c++) begin
      known[c] = known_q[slot_q[c]];
      last[c] = of_channel[by_second_q[slot_q[c]]][c];
      for (int unsigned k = 0; k < Channels; k++) begin
        if (write_q[k] && slot_qq[k] == slot_q[c]) last[c] = line_qq[k];
      end
    end
    if (write[0] && slot_q[0] == slot_q[1]) begin
      known[1] = 1'b1;
      last[1] = line_q[0];
    end
    for (int unsigned c = 0; c < Channels; c++) begin
      item_d[c] = item_q[c];
      if (now_q[c] && known[c] && goes_on(last[c], line_q[c])) item_d[c].verdict = VerdictRun;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      known_q <= '0;
      by_second_q <= '0;
      write_q <= '{default: 1'b0};
    end else begin
      for (int unsigned c = 0; c < Channels; c++) begin
        write_q[c] <= write[c];
        if (write[c]) begin
          known_q[slot_q[c]] <= 1'b1;
          by_second_q[slot_q[c]] <= c == 1;
        end
      end
      if (restart_i) begin
        known_q <= '0;
        write_q <= '{default: 1'b0};
      end
    end
  end

  for (genvar c = 0; c < Channels; c++) begin : gen_out
    always_ff @(posedge clk_i) begin
      if (write[c]) begin
        line_qq[c] <= line_q[c];
        slot_qq[c] <= slot_q[c];
      end
    end

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) item_qq[c] <= '{verdict: VerdictNone, default: '0};
      else item_qq[c] <= item_d[c];
    end
    assign item_o[c] = item_qq[c];
  end
endmodule
