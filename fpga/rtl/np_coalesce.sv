// SPDX-License-Identifier: Apache-2.0
// Makes one request of a run: a program that reads a page line by line sends a request for each of
// its 64 lines and uses it once. A request goes on with a run if the last request that met one of its
// two entries was to a line no more than CoalesceReach away, before or after; not if it was to the
// same: that is another use. The first of a run passes, the others get the verdict Run.
//
// Two tables of 2^CoalesceLog2 entries (np_runs), of which each has another hash of the page's
// number: pages that push each other out of an entry again and again, as two streams do that go on
// side by side, have another one in the other table. All runs end each window_i periods of 100 us (0:
// never), or what is used again and again and has few lines would be counted once for ever; and with
// restart_i. Two cycles from item to item, whether it is in use or not.
module np_coalesce
  import np_pkg::*;
#(
  parameter int unsigned CyclesPer100us = 40000
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        restart_i,
  input  logic        coalesce_i,
  input  logic [15:0] window_i,
  input  item_t       item_i [Channels],
  input  line_t       line_i [Channels],
  output item_t       item_o [Channels]
);
  logic now [Channels];
  slot_t slot [CoalesceTables][Channels];
  logic near [CoalesceTables][Channels];
  logic fire, forget;
  item_t item_q [Channels];
  item_t item_d [Channels];
  item_t item_qq [Channels];

  // The bytes of the number XORed, each turned by some bits: by none in table 0.
  function automatic slot_t slot_of(line_t line, int unsigned table_number);
    logic [KeyW-1:0] page;
    slot_t part;
    int unsigned turn;
    page = KeyW'(line >> (MinUnitLog2 - LineLog2));
    slot_of = '0;
    for (int unsigned b = 0; b < 4; b++) begin
      part = page[8*b+:8];
      turn = table_number * b * 3 % 8;
      slot_of ^= (part << turn) | (part >> (8 - turn));
    end
  endfunction

  np_timer #(
    .CyclesPer100us(CyclesPer100us)
  ) u_window (
    .clk_i,
    .rst_ni,
    .run_i(coalesce_i && window_i != '0),
    .restart_i,
    .ticks_i(TickW'(window_i)),
    .fire_o(fire)
  );
  assign forget = fire || restart_i;

  for (genvar t = 0; t < CoalesceTables; t++) begin : gen_table
    for (genvar c = 0; c < Channels; c++) begin : gen_slot
      assign slot[t][c] = slot_of(line_i[c], t);
    end
    np_runs u_runs (
      .clk_i,
      .rst_ni,
      .forget_i(forget),
      .now_i(now),
      .line_i,
      .slot_i(slot[t]),
      .near_o(near[t])
    );
  end

  for (genvar c = 0; c < Channels; c++) begin : gen_channel
    assign now[c] = coalesce_i && item_i[c].verdict == VerdictCount;

    always_comb begin
      item_d[c] = item_q[c];
      for (int unsigned t = 0; t < CoalesceTables; t++) begin
        if (near[t][c]) item_d[c].verdict = VerdictRun;
      end
    end

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        item_q[c] <= '{verdict: VerdictNone, default: '0};
        item_qq[c] <= '{verdict: VerdictNone, default: '0};
      end else begin
        item_q[c] <= item_i[c];
        item_qq[c] <= item_d[c];
      end
    end
    assign item_o[c] = item_qq[c];
  end
endmodule
