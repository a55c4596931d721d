// SPDX-License-Identifier: Apache-2.0
// What one request does to its set of the table. A unit that has an entry adds one to it. One that
// has none takes a free entry; if there is none, it lowers the smallest count by one, or takes that
// entry when its count is one. Combinational.
//
// By parts: an entry has a bit for each part of the unit (of a page: each line) that was touched
// lately. A request that is near a touched part goes on with a use of the unit and does not count;
// in which order the parts came makes no difference. The bits are forgotten after PartRequests
// requests, which is a unit that was read once, and with each window. So that a unit without an
// entry does not lower a count at each of its requests, a set has the parts of the last such unit.
module np_set_update
  import np_pkg::*;
#(
  parameter int unsigned UnitTagW = 18
) (
  input  logic                          valid_i,
  input  logic                          by_parts_i,
  input  window_t                       window_i,
  input  cnt_t                          threshold_i,
  input  logic                          room_i,
  input  logic [UnitTagW-1:0]           tag_i,
  input  part_t                         part_i,
  input  way_t [Ways-1:0]               ways_i,
  input  logic [Ways-1:0][UnitTagW-1:0] tags_i,
  input  logic                          outside_valid_i,
  input  touched_t                      outside_i,
  input  logic [UnitTagW-1:0]           outside_tag_i,
  output way_t [Ways-1:0]               ways_o,
  output logic [Ways-1:0][UnitTagW-1:0] tags_o,
  output logic                          outside_valid_o,
  output touched_t                      outside_o,
  output logic [UnitTagW-1:0]           outside_tag_o,
  output cnt_t                          count_o,  // after the request, of the entry it met
  output logic                          counted_o,
  output logic                          saturated_o,
  output logic                          displaced_o,
  output logic                          entered_o,
  output logic                          left_o,
  output bin_t                          bin_o,
  output logic                          report_o,
  output logic                          refused_o
);
  logic [Ways-1:0] match;
  logic hit, miss, full, take, lower, fresh, near, wanted;
  logic [WaysLog2-1:0] least, at;
  cnt_t least_count;
  way_t old, now;
  touched_t lately, touched;

  function automatic parts_t neighbours(part_t part);
    for (int unsigned p = 0; p < Parts; p++) begin
      neighbours[p] = p != 32'(part) && p + PartReach >= 32'(part) && p <= 32'(part) + PartReach;
    end
  endfunction

  for (genvar w = 0; w < Ways; w++) begin : gen_match
    assign match[w] = ways_i[w].count != '0 && tags_i[w] == tag_i;
  end

  always_comb begin
    least = '0;
    least_count = ways_i[0].count;
    at = '0;
    for (int unsigned w = 0; w < Ways; w++) begin
      if (ways_i[w].count < least_count) begin
        least = WaysLog2'(w);
        least_count = ways_i[w].count;
      end
      if (match[w]) at |= WaysLog2'(w);
    end
    if (match == '0) at = least;
  end

  assign hit = valid_i && match != '0;
  assign miss = valid_i && match == '0;
  assign full = least_count != '0;
  assign old = ways_i[at];

  // What was touched lately of the unit, and with this request.
  always_comb begin
    lately = '0;
    if (hit) lately = old.touched;
    else if (full && outside_valid_i && outside_tag_i == tag_i) lately = outside_i;
  end

  assign fresh = lately.seen == '0 || lately.window != window_i;
  assign near = !fresh && (lately.parts & neighbours(part_i)) != '0;
  assign touched.parts = (fresh ? '0 : lately.parts) | (parts_t'(1) << part_i);
  assign touched.seen = fresh ? part_t'(1) : lately.seen + part_t'(1);
  assign touched.window = window_i;

  assign counted_o = valid_i && !(by_parts_i && near);
  assign take = miss && counted_o && least_count <= cnt_t'(1);
  assign lower = miss && counted_o && least_count > cnt_t'(1);
  assign saturated_o = hit && counted_o && old.count == '1;
  assign displaced_o = miss && counted_o && full;

  always_comb begin
    now = old;
    if (hit) begin
      now.count = old.count + cnt_t'(counted_o && !saturated_o);
      now.touched = touched;
    end
    if (take) now = '{hot: 1'b0, count: cnt_t'(1), touched: touched};
    if (lower) now.count = old.count - cnt_t'(1);
  end

  assign count_o = now.count;
  assign wanted = (hit || take) && counted_o && now.count > threshold_i && !now.hot;
  assign report_o = wanted && room_i;
  assign refused_o = wanted && !room_i;

  // The bin of a count of one loses the old entry and gets the new one.
  assign entered_o = (hit && counted_o && !saturated_o && hist_is_edge(now.count)) ||
      (take && old.count == '0);
  assign left_o = lower && hist_is_edge(old.count);
  assign bin_o = hist_bin(lower ? old.count : now.count);

  always_comb begin
    ways_o = ways_i;
    tags_o = tags_i;
    if (valid_i) begin
      ways_o[at] = now;
      ways_o[at].hot = now.hot || report_o;
      if (take) tags_o[at] = tag_i;
    end
    outside_valid_o = (miss && full) ? !take : outside_valid_i;
    outside_o = (miss && full) ? touched : outside_i;
    outside_tag_o = (miss && full) ? tag_i : outside_tag_i;
  end
endmodule
