// SPDX-License-Identifier: Apache-2.0
// What one counted request does to its two counters: which increase, the new estimate, and
// whether the unit is reported. Combinational.
module np_update
  import np_pkg::*;
(
  input  logic       valid_i,
  input  logic       conservative_i,
  input  cnt_t       threshold_i,
  input  cnt_t       count_i [Rows],
  input  logic       hot_i   [Rows],
  input  logic       room_i,
  output logic       inc_o   [Rows],
  output cnt_t       count_o [Rows],  // after the increment
  output logic [1:0] saturated_o,
  output cnt_t       estimate_o,
  output logic       report_o,
  output logic       refused_o
);
  logic wanted;
  logic row0_low, row1_low;

  assign row0_low = count_i[0] <= count_i[1];
  assign row1_low = count_i[1] <= count_i[0];

  always_comb begin
    inc_o[0] = valid_i && (!conservative_i || row0_low) && count_i[0] != '1;
    inc_o[1] = valid_i && (!conservative_i || row1_low) && count_i[1] != '1;
    saturated_o = 2'(valid_i && (!conservative_i || row0_low) && count_i[0] == '1) +
                  2'(valid_i && (!conservative_i || row1_low) && count_i[1] == '1);
    for (int unsigned r = 0; r < Rows; r++) count_o[r] = count_i[r] + CntW'(inc_o[r]);
  end

  assign estimate_o = (count_o[0] < count_o[1]) ? count_o[0] : count_o[1];
  assign wanted = valid_i && estimate_o > threshold_i && !(hot_i[0] && hot_i[1]);
  assign report_o = wanted && room_i;
  assign refused_o = wanted && !room_i;
endmodule
