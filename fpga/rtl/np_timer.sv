// SPDX-License-Identifier: Apache-2.0
// Length of an epoch: fires every ticks_i periods of 100 us while run_i is set. restart_i begins
// a new epoch now.
module np_timer
  import np_pkg::*;
#(
  parameter int unsigned CyclesPer100us = 40000
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic             run_i,
  input  logic             restart_i,
  input  logic [TickW-1:0] ticks_i,
  output logic             fire_o
);
  localparam int unsigned CycleW = $clog2(CyclesPer100us + 1);

  logic [CycleW-1:0] cycle_q;
  logic [TickW-1:0] tick_q;
  logic tick, last;

  assign tick = cycle_q == CycleW'(CyclesPer100us - 1);
  assign last = tick_q == ticks_i - TickW'(1);
  assign fire_o = run_i && tick && last && !restart_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      cycle_q <= '0;
      tick_q <= '0;
    end else if (!run_i || restart_i || fire_o) begin
      cycle_q <= '0;
      tick_q <= '0;
    end else if (tick) begin
      cycle_q <= '0;
      tick_q <= tick_q + TickW'(1);
    end else begin
      cycle_q <= cycle_q + CycleW'(1);
    end
  end
endmodule
