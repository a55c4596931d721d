// SPDX-License-Identifier: Apache-2.0
// The counters that one channel has added to in one row of the sketch. One channel writes them,
// both read them. Beside the counters (with their hot bit) stands a word for each group of 16:
// the epoch in which it was last written and which of its counters are of that epoch. A counter
// whose group has another epoch, or whose bit is 0, is zero: a new epoch is one increment.
// Data come two cycles after the address.
module np_partial
  import np_pkg::*;
#(
  parameter int unsigned IdxW = 19
) (
  input  logic            clk_i,
  input  logic            init_we_i,  // write group words as "never used"
  input  logic [IdxW-GroupLog2-1:0] init_group_i,
  input  logic            we_i,
  input  logic [IdxW-1:0] windex_i,
  input  cnt_t            wcount_i,
  input  logic            whot_i,
  input  tag_t            wtag_i,
  input  group_t          wvalid_i,
  input  logic            re_i     [Channels],
  input  logic [IdxW-1:0] rindex_i [Channels],
  output cnt_t            count_o  [Channels],
  output logic            hot_o    [Channels],
  output tag_t            tag_o    [Channels],
  output group_t          valid_o  [Channels]
);
  localparam int unsigned GroupIdxW = IdxW - GroupLog2;
  localparam int unsigned CntWordW = CntW + 1;
  localparam int unsigned GroupWordW = TagW + GroupSize;

  logic [GroupIdxW-1:0] rgroup [Channels];
  logic [CntWordW-1:0] cnt_word [Channels];
  logic [GroupWordW-1:0] group_word [Channels];

  for (genvar c = 0; c < Channels; c++) begin : gen_read
    assign rgroup[c] = rindex_i[c][IdxW-1:GroupLog2];
    always_ff @(posedge clk_i) begin
      {hot_o[c], count_o[c]} <= cnt_word[c];
      {tag_o[c], valid_o[c]} <= group_word[c];
    end
  end

  np_ram_2r1w #(
    .Depth(1 << IdxW),
    .Width(CntWordW)
  ) u_counters (
    .clk_i,
    .we_i,
    .waddr_i(windex_i),
    .wdata_i({whot_i, wcount_i}),
    .re_i,
    .raddr_i(rindex_i),
    .rdata_o(cnt_word)
  );

  np_ram_2r1w #(
    .Depth(1 << GroupIdxW),
    .Width(GroupWordW)
  ) u_groups (
    .clk_i,
    .we_i(we_i | init_we_i),
    .waddr_i(init_we_i ? init_group_i : windex_i[IdxW-1:GroupLog2]),
    .wdata_i(init_we_i ? '0 : {wtag_i, wvalid_i}),
    .re_i,
    .raddr_i(rgroup),
    .rdata_o(group_word)
  );

`ifndef SYNTHESIS
  InitAlone: assert property (@(posedge clk_i) !(init_we_i && we_i))
    else $error("np_partial: a counter was written during initialisation");
`endif
endmodule
