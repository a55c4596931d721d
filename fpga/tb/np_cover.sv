// SPDX-License-Identifier: Apache-2.0
// Functional coverage: the situations that the benches must have brought about. "make coverage"
// fails unless each was seen. Bound into the design; the design knows nothing of it.
module np_cover_row
  import np_pkg::*;
(
  input logic clk_i,
  input logic clear_i,
  input logic x_valid_q [Channels],
  input logic x_same_q,
  input logic x_match_q [Channels][Channels],
  input logic x_group_q [Channels],
  input logic w_now_q   [3],
  input logic b_valid_q [Channels],
  input logic b_match_q [Channels][Channels][3],
  input logic b_group_q [Channels][Channels][3],
  input cnt_t count_o   [Channels],
  input logic inc_i     [Channels]
);
  BothChannelsOneCounter: cover property (@(posedge clk_i)
      x_valid_q[0] && x_valid_q[1] && x_same_q && inc_i[0] && inc_i[1]);
  BothChannelsReachMaximum: cover property (@(posedge clk_i)
      x_same_q && count_o[1] == 16'hfffe && inc_i[0] && !inc_i[1]);
  ClearAtFullLoad: cover property (@(posedge clk_i) clear_i && x_valid_q[0] && x_valid_q[1]);
  HazardAcrossClear: cover property (@(posedge clk_i)
      x_valid_q[0] && x_match_q[0][0] && !w_now_q[0]);
  for (genvar c = 0; c < Channels; c++) begin : gen_channel
    Saturated: cover property (@(posedge clk_i) x_valid_q[c] && count_o[c] == '1);
    SameGroupOtherCounter: cover property (@(posedge clk_i)
        x_valid_q[c] && x_group_q[c] && !x_match_q[c][c]);
    for (genvar k = 0; k < Channels; k++) begin : gen_writer
      Distance1: cover property (@(posedge clk_i) x_valid_q[c] && x_match_q[c][k]);
      for (genvar d = 0; d < 3; d++) begin : gen_distance
        Distance2To4: cover property (@(posedge clk_i) b_valid_q[c] && b_match_q[c][k][d]);
        GroupDistance2To4: cover property (@(posedge clk_i)
            b_valid_q[c] && b_group_q[c][k][d] && !b_match_q[c][k][d]);
        StaleDistance2To4: cover property (@(posedge clk_i)
            b_valid_q[c] && b_match_q[c][k][d] && !w_now_q[d]);
      end
    end
  end
endmodule

module np_cover_sketch
  import np_pkg::*;
(
  input logic       clk_i,
  input logic       clear_i,
  input logic       conservative_i,
  input logic       room_i [Channels],
  input logic       report0,
  input logic       report1,
  input logic       refused0,
  input logic       refused1,
  input logic       x_valid [Channels],
  input logic       inc0 [Rows],
  input logic       inc1 [Rows],
  input logic       row_same [Rows],
  input event_t     event_o [Channels]
);
  TwoReports: cover property (@(posedge clk_i) report0 && report1);
  SecondRefused: cover property (@(posedge clk_i) report0 && refused1);
  BothRefused: cover property (@(posedge clk_i) refused0 && refused1);
  OneSlotLeft: cover property (@(posedge clk_i) room_i[0] && !room_i[1] && report1);
  SameUnitReportedOnce: cover property (@(posedge clk_i)
      report0 && x_valid[1] && row_same[0] && row_same[1] && !report1);
  ReportDuringClear: cover property (@(posedge clk_i) clear_i && report0);
  ConservativeRow0Only: cover property (@(posedge clk_i) conservative_i && inc0[0] && !inc0[1]);
  ConservativeRow1Only: cover property (@(posedge clk_i) conservative_i && inc1[1] && !inc1[0]);
  ConservativeBoth: cover property (@(posedge clk_i) conservative_i && inc0[0] && inc0[1]);
  RowsCollideApart: cover property (@(posedge clk_i)
      x_valid[0] && x_valid[1] && row_same[0] != row_same[1]);
  BinsTogether: cover property (@(posedge clk_i)
      event_o[0].entered && event_o[1].entered && event_o[0].bin == event_o[1].bin);
  TopBin: cover property (@(posedge clk_i) event_o[0].entered && event_o[0].bin == '1);
  SkippedType: cover property (@(posedge clk_i) event_o[0].verdict == VerdictType);
  SkippedRange: cover property (@(posedge clk_i) event_o[1].verdict == VerdictRange);
  SkippedSample: cover property (@(posedge clk_i) event_o[0].verdict == VerdictSample);
  SkippedRun: cover property (@(posedge clk_i) event_o[1].verdict == VerdictRun);
endmodule

module np_cover_sets
  import np_pkg::*;
(
  input logic clk_i,
  input logic clear_i,
  input logic x_valid_q [Channels],
  input logic x_same_q,
  input logic x_match_q [Channels][Channels],
  input logic w_now_q   [3],
  input logic b_valid_q [Channels],
  input logic b_match_q [Channels][Channels][3],
  input logic b_second  [Channels],
  input logic b_live    [Channels]
);
  BothChannelsOneSet: cover property (@(posedge clk_i) x_same_q);
  BothChannelsTwoSets: cover property (@(posedge clk_i)
      x_valid_q[0] && x_valid_q[1] && !x_same_q);
  SetEveryClock: cover property (@(posedge clk_i)
      x_same_q && x_match_q[0][0] && x_match_q[0][1] && x_match_q[1][0] && x_match_q[1][1]);
  ClearAtFullLoad: cover property (@(posedge clk_i) clear_i && x_valid_q[0] && x_valid_q[1]);
  HazardAcrossClear: cover property (@(posedge clk_i)
      x_valid_q[0] && x_match_q[0][0] && !w_now_q[0]);
  for (genvar c = 0; c < Channels; c++) begin : gen_channel
    logic forwarded;
    always_comb begin
      forwarded = 1'b0;
      for (int unsigned k = 0; k < Channels; k++) begin
        for (int unsigned d = 0; d < 3; d++) forwarded |= b_match_q[c][k][d];
      end
    end
    FirstMemory: cover property (@(posedge clk_i)
        b_valid_q[c] && b_live[c] && !forwarded && !b_second[c]);
    SecondMemory: cover property (@(posedge clk_i)
        b_valid_q[c] && b_live[c] && !forwarded && b_second[c]);
    for (genvar k = 0; k < Channels; k++) begin : gen_writer
      Distance1: cover property (@(posedge clk_i) x_valid_q[c] && x_match_q[c][k]);
      for (genvar d = 0; d < 3; d++) begin : gen_distance
        Distance2To4: cover property (@(posedge clk_i) b_valid_q[c] && b_match_q[c][k][d]);
        StaleDistance2To4: cover property (@(posedge clk_i)
            b_valid_q[c] && b_match_q[c][k][d] && !w_now_q[d]);
      end
    end
  end
endmodule

module np_cover_set_update
  import np_pkg::*;
(
  input logic     clk_i,
  input logic     hit,
  input logic     miss,
  input logic     full,
  input logic     take,
  input logic     lower,
  input logic     fresh,
  input logic     near,
  input logic     by_parts_i,
  input window_t  window_i,
  input touched_t lately,
  input logic     counted_o,
  input logic     saturated_o,
  input logic     left_o,
  input logic     report_o,
  input logic     refused_o
);
  Hit: cover property (@(posedge clk_i) hit && counted_o);
  Saturated: cover property (@(posedge clk_i) saturated_o);
  FreeEntry: cover property (@(posedge clk_i) take && !full);
  TakenOver: cover property (@(posedge clk_i) take && full);
  Lowered: cover property (@(posedge clk_i) lower && !left_o);
  LoweredOutOfItsBin: cover property (@(posedge clk_i) lower && left_o);
  GoesOn: cover property (@(posedge clk_i) hit && by_parts_i && near);
  NearButEachCounts: cover property (@(posedge clk_i) hit && !by_parts_i && near);
  GoesOnOutside: cover property (@(posedge clk_i) miss && full && by_parts_i && near);
  OutsideAgain: cover property (@(posedge clk_i) lower && by_parts_i && !fresh && !near);
  ReadOnce: cover property (@(posedge clk_i)
      hit && by_parts_i && lately.seen == '0 && lately.window == window_i);
  WindowEnded: cover property (@(posedge clk_i)
      hit && by_parts_i && lately.seen != '0 && lately.window != window_i);
  ReportedAtOnce: cover property (@(posedge clk_i) take && report_o);
  Refused: cover property (@(posedge clk_i) refused_o);
endmodule

module np_cover_table
  import np_pkg::*;
(
  input logic   clk_i,
  input logic   clear_i,
  input logic   fire,
  input logic   same,
  input logic   room_i [Channels],
  input logic   report0,
  input logic   report1,
  input key_t   key_o [Channels],
  input logic   x_valid [Channels],
  input event_t event0,
  input event_t event1
);
  TwoReports: cover property (@(posedge clk_i) report0 && report1);
  SecondRefused: cover property (@(posedge clk_i) report0 && event1.refused);
  OneSlotLeft: cover property (@(posedge clk_i) room_i[0] && !room_i[1] && report1);
  SameUnitReportedOnce: cover property (@(posedge clk_i)
      report0 && x_valid[1] && key_o[0] == key_o[1] && !report1);
  ReportDuringClear: cover property (@(posedge clk_i) clear_i && report0);
  WindowEndsAtFullLoad: cover property (@(posedge clk_i) fire && x_valid[0] && x_valid[1]);
  BothFindNoRoom: cover property (@(posedge clk_i) same && event0.displaced && event1.displaced);
  UpAndDownTogether: cover property (@(posedge clk_i)
      event0.entered && event1.left && event0.bin == event1.bin);
  DownTogether: cover property (@(posedge clk_i)
      event0.left && event1.left && event0.bin == event1.bin);
endmodule

module np_cover_runs
  import np_pkg::*;
(
  input logic  clk_i,
  input logic  forget_i,
  input logic  now_q     [Channels],
  input logic  written_q [Channels],
  input slot_t slot_q    [Channels],
  input slot_t slot_qq   [Channels],
  input logic  known     [Channels],
  input logic [(1 << CoalesceLog2)-1:0] by_second_q,
  input logic  near_o    [Channels]
);
  logic together;
  assign together = now_q[0] && now_q[1] && slot_q[0] == slot_q[1];

  SameClock: cover property (@(posedge clk_i) together && near_o[1]);
  SameClockOther: cover property (@(posedge clk_i) together && !near_o[1]);
  ForgottenWhileUsed: cover property (@(posedge clk_i) forget_i && now_q[0] && now_q[1]);
  for (genvar c = 0; c < Channels; c++) begin : gen_channel
    Unknown: cover property (@(posedge clk_i) now_q[c] && !known[c]);
    for (genvar k = 0; k < Channels; k++) begin : gen_writer
      ClockBefore: cover property (@(posedge clk_i)
          now_q[c] && written_q[k] && slot_qq[k] == slot_q[c]);
      Earlier: cover property (@(posedge clk_i)
          near_o[c] && by_second_q[slot_q[c]] == 1'(k) &&
          !(written_q[0] && slot_qq[0] == slot_q[c]) && !(written_q[1] && slot_qq[1] == slot_q[c]));
    end
  end
endmodule

module np_cover_coalesce
  import np_pkg::*;
(
  input logic clk_i,
  input logic near [CoalesceTables][Channels]
);
  FirstTableOnly: cover property (@(posedge clk_i) near[0][0] && !near[1][0]);
  SecondTableOnly: cover property (@(posedge clk_i) near[1][1] && !near[0][1]);
endmodule

module np_cover_ring (
  input logic clk_i,
  input logic rst_ni,
  input logic clear_i,
  input logic [3:0] tail_q,
  input logic report_i [np_pkg::Channels]
);
  WrapWithOne: cover property (@(posedge clk_i) tail_q == 4'd15 && (report_i[0] ^ report_i[1]));
  WrapWithTwo: cover property (@(posedge clk_i) tail_q == 4'd15 && report_i[0] && report_i[1]);
  ClearedWhileUsed: cover property (@(posedge clk_i) clear_i && tail_q != '0);
  ResetWhileUsed: cover property (@(posedge clk_i) !rst_ni && $past(tail_q) != '0);
endmodule

module np_cover_host (
  input logic clk_i,
  input logic reset_i,
  input logic refuse_o,
  input logic head_error_o,
  input logic locked_o,
  input logic enabled_o,
  input logic [15:0] operation_o,
  input logic clear_q,
  input logic snapshot_q,
  input logic head_pend_q
);
  Refused: cover property (@(posedge clk_i) refuse_o);
  BadHead: cover property (@(posedge clk_i) head_error_o);
  ResetWhileEnabled: cover property (@(posedge clk_i) reset_i && enabled_o);
  EnableInProgress: cover property (@(posedge clk_i) operation_o == 16'd1);
  DisableInProgress: cover property (@(posedge clk_i) operation_o == 16'd2);
  ResetInProgress: cover property (@(posedge clk_i) operation_o == 16'd3);
  SeveralPending: cover property (@(posedge clk_i) clear_q && snapshot_q && head_pend_q);
  Locked: cover property (@(posedge clk_i) locked_o);
endmodule

bind np_row np_cover_row u_cover (.*);
bind np_runs np_cover_runs u_cover (.*);
bind np_coalesce np_cover_coalesce u_cover (.*);
bind np_sketch np_cover_sketch u_cover (.*);
bind np_sets np_cover_sets u_cover (.*);
bind np_set_update np_cover_set_update u_cover (.clk_i(np_table.clk_i), .*);
bind np_table np_cover_table u_cover (.*);
bind np_ring np_cover_ring u_cover (.*);
bind np_host_ctrl np_cover_host u_cover (.*);
