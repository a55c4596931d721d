// SPDX-License-Identifier: Apache-2.0
// All that runs on the memory clock: requests in, counters, hot list and statistics.
module np_core
  import np_pkg::*;
#(
  parameter bit Tagged = 1'b0,         // the table instead of the sketch
  parameter int unsigned IdxW = 19,
  parameter int unsigned RingSize = 4096,
  parameter int unsigned CyclesPer100us = 40000,
  localparam int unsigned PtrW = $clog2(RingSize),
  localparam int unsigned HashW = Tagged ? IdxW - WaysLog2 : IdxW,
  localparam int unsigned InitW = Tagged ? HashW : IdxW - GroupLog2
) (
  input  logic              clk_i,
  input  logic              rst_ni,
  // Snooped channels.
  input  logic              req_valid_i [Channels],
  input  logic              req_write_i [Channels],
  input  addr_t             req_addr_i  [Channels],
  // Range bitmap, in memories of the register side.
  output logic              range_re_o   [Channels],
  output logic [5:0]        range_word_o [Channels],
  input  logic [63:0]       range_bits_i [Channels],
  // Commands, by handshake.
  input  logic              cmd_valid_i,
  input  cmd_t              cmd_i,
  output logic              cmd_done_o,
  // To be synchronised by the register side.
  output logic              init_done_o,
  output logic              generation_o,
  output logic [PtrW-1:0]   tail_o,
  output logic              refused_o,
  // Stable from the end of a snapshot command to the next one.
  output logic [63:0]       stat_o    [StatWords],
  output logic [IdxW:0]     reached_o [HistBins],
  // Read port of the hot list.
  input  logic              host_clk_i,
  input  logic              host_re_i,
  input  logic [PtrW-1:0]   host_slot_i,
  output logic [EntryW-1:0] host_entry_o
);
  cfg_t cfg;
  logic enable, restart, clear, reset, snapshot, applied;
  logic init_we;
  logic [InitW-1:0] init_group;
  logic [PtrW-1:0] head;

  item_t filtered [Channels];
  line_t line [Channels];
  item_t coalesced [Channels];
  item_t sampled [Channels];
  item_t hashed [Channels];
  logic [HashW-1:0] index [Channels][Rows];
  logic room [Channels];
  logic report [Channels];
  key_t key [Channels];
  cnt_t estimate [Channels];
  event_t events [Channels];
  tag_t epoch;

  np_core_ctrl #(
    .InitW(InitW),
    .PtrW(PtrW),
    .CyclesPer100us(CyclesPer100us)
  ) u_ctrl (
    .clk_i,
    .rst_ni,
    .cmd_valid_i,
    .cmd_i,
    .cmd_done_o,
    .init_we_o(init_we),
    .init_group_o(init_group),
    .init_done_o,
    .cfg_o(cfg),
    .enable_o(enable),
    .restart_o(restart),
    .clear_o(clear),
    .reset_o(reset),
    .snapshot_o(snapshot),
    .applied_o(applied),
    .head_o(head),
    .generation_o
  );

  for (genvar c = 0; c < Channels; c++) begin : gen_channel
    np_filter u_filter (
      .clk_i,
      .rst_ni,
      .enable_i(enable),
      .track_read_i(cfg.track_read),
      .track_write_i(cfg.track_write),
      .unit_shift_i(cfg.unit_shift),
      .valid_i(req_valid_i[c]),
      .write_i(req_write_i[c]),
      .addr_i(req_addr_i[c]),
      .range_re_o(range_re_o[c]),
      .range_word_o(range_word_o[c]),
      .range_bits_i(range_bits_i[c]),
      .item_o(filtered[c]),
      .line_o(line[c])
    );
    np_hash #(
      .IdxW(HashW)
    ) u_hash (
      .clk_i,
      .rst_ni,
      .item_i(sampled[c]),
      .item_o(hashed[c]),
      .index_o(index[c])
    );
  end

  np_coalesce #(
    .CyclesPer100us(CyclesPer100us)
  ) u_coalesce (
    .clk_i,
    .rst_ni,
    .restart_i(restart),
    .coalesce_i(cfg.coalesce),
    .window_i(cfg.run_window),
    .item_i(filtered),
    .line_i(line),
    .item_o(coalesced)
  );

  np_sample u_sample (
    .clk_i,
    .rst_ni,
    .restart_i(restart),
    .random_i(cfg.random),
    .downsample_i(cfg.downsample),
    .item_i(coalesced),
    .item_o(sampled)
  );

  if (Tagged) begin : gen_table
    logic [HashW-1:0] set [Channels];
    logic unused_table;
    for (genvar c = 0; c < Channels; c++) begin : gen_set
      assign set[c] = index[c][0];
    end
    assign unused_table = ^{cfg.conservative, index[0][1], index[1][1]};
    np_table #(
      .IdxW(IdxW),
      .CyclesPer100us(CyclesPer100us)
    ) u_table (
      .clk_i,
      .rst_ni,
      .init_we_i(init_we),
      .init_set_i(init_group),
      .clear_i(clear),
      .restart_i(restart),
      .by_parts_i(cfg.by_parts),
      .window_i(cfg.use_window),
      .threshold_i(cfg.threshold),
      .epoch_o(epoch),
      .item_i(hashed),
      .set_i(set),
      .room_i(room),
      .report_o(report),
      .key_o(key),
      .estimate_o(estimate),
      .event_o(events)
    );
  end else begin : gen_sketch
    logic unused_sketch;
    assign unused_sketch = ^{cfg.by_parts, cfg.use_window};
    np_sketch #(
      .IdxW(IdxW)
    ) u_sketch (
      .clk_i,
      .rst_ni,
      .init_we_i(init_we),
      .init_group_i(init_group),
      .clear_i(clear),
      .conservative_i(cfg.conservative),
      .threshold_i(cfg.threshold),
      .epoch_o(epoch),
      .item_i(hashed),
      .index_i(index),
      .room_i(room),
      .report_o(report),
      .key_o(key),
      .estimate_o(estimate),
      .event_o(events)
    );
  end

  np_ring #(
    .Size(RingSize)
  ) u_ring (
    .clk_i,
    .rst_ni,
    .clear_i(reset),
    .head_i(head),
    .room_o(room),
    .report_i(report),
    .key_i(key),
    .estimate_i(estimate),
    .tail_o,
    .host_clk_i,
    .host_re_i,
    .host_slot_i,
    .host_entry_o
  );

  logic unused_cfg;  // used by u_ctrl itself
  assign unused_cfg = ^{cfg.epoch_mode, cfg.epoch_ticks};

  assign refused_o = events[0].refused || events[1].refused;

  // The strobes act at stage X in the cycle after the command; what X then does reaches the
  // statistics one cycle later still.
  logic [1:0] clear_q, reset_q, snapshot_q, applied_q;
  tag_t epoch_q, epoch_qq;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      {clear_q, reset_q, snapshot_q, applied_q} <= '0;
      epoch_q <= '0;
      epoch_qq <= '0;
    end else begin
      clear_q <= {clear_q[0], clear};
      reset_q <= {reset_q[0], reset};
      snapshot_q <= {snapshot_q[0], snapshot};
      applied_q <= {applied_q[0], applied};
      epoch_q <= epoch;
      epoch_qq <= epoch_q;
    end
  end

  np_stats u_stats (
    .clk_i,
    .rst_ni,
    .clear_i(reset_q[1]),
    .epoch_i(clear_q[1]),
    .applied_i(applied_q[1]),
    .snapshot_i(snapshot_q[1]),
    .epoch_number_i(epoch_qq),
    .event_i(events),
    .stat_o
  );

  np_hist #(
    .IdxW(IdxW)
  ) u_hist (
    .clk_i,
    .rst_ni,
    .clear_i(clear_q[1]),
    .snapshot_i(snapshot_q[1]),
    .event_i(events),
    .reached_o
  );
endmodule
