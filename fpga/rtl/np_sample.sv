// SPDX-License-Identifier: Apache-2.0
// Down-sampling of both channels, one in 2^n: every 2^n-th request in arrival order (channel 0
// before channel 1), the first one included, or by a 32-bit xorshift generator per channel that
// steps once a request. restart_i puts both back to their start.
module np_sample
  import np_pkg::*;
(
  input  logic       clk_i,
  input  logic       rst_ni,
  input  logic       restart_i,
  input  logic       random_i,
  input  logic [3:0] downsample_i,
  input  item_t      item_i [Channels],
  output item_t      item_o [Channels]
);
  localparam logic [31:0] Seed0 = 32'h9e3779b9;
  localparam logic [31:0] Seed1 = 32'h7f4a7c15;

  logic [15:0] mask;
  logic [15:0] count_d, count_q;
  logic [31:0] state_d [Channels];
  logic [31:0] state_q [Channels];
  item_t item_d [Channels];

  function automatic logic [31:0] step(logic [31:0] state);
    logic [31:0] s;
    s = state ^ (state << 13);
    s = s ^ (s >> 17);
    step = s ^ (s << 5);
  endfunction

  assign mask = (16'd1 << downsample_i) - 16'd1;

  always_comb begin
    count_d = count_q;
    for (int unsigned c = 0; c < Channels; c++) begin
      item_d[c] = item_i[c];
      state_d[c] = state_q[c];
      if (item_i[c].verdict == VerdictCount) begin
        if (random_i ? ((state_q[c][15:0] & mask) != '0) : ((count_d & mask) != '0)) begin
          item_d[c].verdict = VerdictSample;
        end
        count_d = count_d + 16'd1;
        state_d[c] = step(state_q[c]);
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      count_q <= '0;
      state_q[0] <= Seed0;
      state_q[1] <= Seed1;
    end else if (restart_i) begin
      count_q <= '0;
      state_q[0] <= Seed0;
      state_q[1] <= Seed1;
    end else begin
      count_q <= count_d;
      state_q <= state_d;
    end
  end

  for (genvar c = 0; c < Channels; c++) begin : gen_out
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) item_o[c] <= '{verdict: VerdictNone, default: '0};
      else item_o[c] <= item_d[c];
    end
  end
endmodule
