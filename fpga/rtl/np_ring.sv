// SPDX-License-Identifier: Apache-2.0
// Hot list: a ring of 64-bit entries with the head of the host. Two entries a clock fit: even
// slots are in one memory, odd slots in the other. The host's side reads the memories with its
// own clock; it learns of the tail only after the entry is written.
module np_ring
  import np_pkg::*;
#(
  parameter int unsigned Size = 4096,
  localparam int unsigned PtrW = $clog2(Size)
) (
  input  logic              clk_i,
  input  logic              rst_ni,
  input  logic              clear_i,
  input  logic [PtrW-1:0]   head_i,
  output logic              room_o     [Channels],  // for one entry, for two
  input  logic              report_i   [Channels],
  input  key_t              key_i      [Channels],
  input  cnt_t              estimate_i [Channels],
  output logic [PtrW-1:0]   tail_o,  // entries below are in memory

  input  logic              host_clk_i,
  input  logic              host_re_i,
  input  logic [PtrW-1:0]   host_slot_i,
  output logic [EntryW-1:0] host_entry_o  // one host clock later
);
  logic [PtrW-1:0] tail_d, tail_q, free;
  logic [EntryW-1:0] entry [Channels];
  logic we_d [2];
  logic we_q [2];
  logic [PtrW-2:0] slot_d [2];
  logic [PtrW-2:0] slot_q [2];
  logic [EntryW-1:0] data_d [2];
  logic [EntryW-1:0] data_q [2];
  logic [EntryW-1:0] host_data [2];
  logic host_odd_q, first, second_odd;
  logic [PtrW-1:0] second;

  // One slot stays free, so that full and empty differ.
  assign free = head_i - tail_q - PtrW'(1);
  assign room_o[0] = free != '0;
  assign room_o[1] = free > PtrW'(1);

  for (genvar c = 0; c < Channels; c++) begin : gen_entry
    assign entry[c] = EntryW'({key_i[c], estimate_i[c]});
  end

  assign first = report_i[0] | report_i[1];
  assign second = tail_q + PtrW'(1);
  assign second_odd = second[0];

  always_comb begin
    we_d = '{default: 1'b0};
    slot_d = '{default: tail_q[PtrW-1:1]};
    data_d = '{default: report_i[0] ? entry[0] : entry[1]};
    we_d[tail_q[0]] = first;
    if (report_i[0] && report_i[1]) begin
      we_d[second_odd] = 1'b1;
      slot_d[second_odd] = second[PtrW-1:1];
      data_d[second_odd] = entry[1];
    end
    tail_d = tail_q + PtrW'(report_i[0]) + PtrW'(report_i[1]);
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      tail_q <= '0;
      tail_o <= '0;
      we_q <= '{default: '0};
    end else if (clear_i) begin
      tail_q <= '0;
      tail_o <= '0;
      we_q <= '{default: '0};
    end else begin
      tail_q <= tail_d;
      tail_o <= tail_q;
      we_q <= we_d;
    end
  end

  always_ff @(posedge clk_i) begin
    if (first) begin
      slot_q <= slot_d;
      data_q <= data_d;
    end
  end

  for (genvar b = 0; b < 2; b++) begin : gen_bank
    np_ram_2clk #(
      .Depth(Size / 2),
      .Width(EntryW)
    ) u_ram (
      .wclk_i(clk_i),
      .we_i(we_q[b]),
      .waddr_i(slot_q[b]),
      .wdata_i(data_q[b]),
      .rclk_i(host_clk_i),
      .re_i(host_re_i),
      .raddr_i(host_slot_i[PtrW-1:1]),
      .rdata_o(host_data[b])
    );
  end

  always_ff @(posedge host_clk_i) begin
    if (host_re_i) host_odd_q <= host_slot_i[0];
  end

  assign host_entry_o = host_data[host_odd_q];

`ifndef SYNTHESIS
  NeverOverrun: assert property (@(posedge clk_i) disable iff (!rst_ni)
      PtrW'(report_i[0]) + PtrW'(report_i[1]) <= free)
    else $error("np_ring: an entry that software has not read would be overwritten");
`endif
endmodule
