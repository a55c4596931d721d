// SPDX-License-Identifier: Apache-2.0
// First stages of one channel: registers the request, looks its address up in the range bitmap
// (the word comes from a block RAM, one cycle later), checks its type, makes the unit number.
// Three cycles from request to item.
module np_filter
  import np_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        enable_i,
  input  logic        track_read_i,
  input  logic        track_write_i,
  input  logic [3:0]  unit_shift_i,
  input  logic        valid_i,
  input  logic        write_i,
  input  addr_t       addr_i,
  output logic        range_re_o,
  output logic [5:0]  range_word_o,
  input  logic [63:0] range_bits_i,
  output item_t       item_o,
  output line_t       line_o  // of item_o, for requests that are counted
);
  logic en_q, valid_q, write_q;
  logic en_qq, valid_qq, write_qq, beyond_qq;
  line_t line_q, line_qq, line_qqq;
  key_t key_qq;
  part_t part_qq;
  logic [5:0] bit_qq;
  item_t item_d, item_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      {valid_q, valid_qq, en_q, en_qq} <= '0;
    end else begin
      valid_q <= valid_i;
      valid_qq <= valid_q;
      en_q <= enable_i;
      en_qq <= en_q;
    end
  end

  assign range_re_o = valid_q;
  assign range_word_o = line_q[RangeLog2-LineLog2+6+:6];

  always_ff @(posedge clk_i) begin
    if (valid_i) begin
      write_q <= write_i;
      line_q <= addr_i[AddrW-1:LineLog2];
    end
    if (valid_q) begin
      write_qq <= write_q;
      beyond_qq <= line_q[AddrW-1-LineLog2:CapacityLog2-LineLog2] != '0;
      bit_qq <= line_q[RangeLog2-LineLog2+:6];
      key_qq <= key_t'(line_q[AddrW-1-LineLog2:MinUnitLog2-LineLog2] >> unit_shift_i);
      part_qq <= part_t'(line_q >> unit_shift_i);
      line_qq <= line_q;
    end
    if (valid_qq) line_qqq <= line_qq;
  end

  always_comb begin
    item_d = '{verdict: VerdictNone, beat: valid_qq, write: write_qq, key: key_qq,
               part: part_qq};
    if (valid_qq && en_qq) begin
      if (write_qq ? !track_write_i : !track_read_i) item_d.verdict = VerdictType;
      else if (beyond_qq || !range_bits_i[bit_qq]) item_d.verdict = VerdictRange;
      else item_d.verdict = VerdictCount;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) item_q <= '{verdict: VerdictNone, default: '0};
    else item_q <= item_d;
  end

  assign item_o = item_q;
  assign line_o = line_qqq;

  logic unused_addr;  // within a line
  assign unused_addr = ^addr_i[LineLog2-1:0];
endmodule
