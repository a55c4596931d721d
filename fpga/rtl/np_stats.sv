// SPDX-License-Identifier: Apache-2.0
// Every count of the card in one place, so that a snapshot of them is of one moment. Each request
// on the wires is in reads or writes; each one that came while the unit was enabled is in exactly
// one of counted and the four skipped counts.
module np_stats
  import np_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        clear_i,     // of all but the number of snapshots
  input  logic        epoch_i,     // a new epoch begins
  input  logic        applied_i,   // a command takes effect
  input  logic        snapshot_i,
  input  tag_t        epoch_number_i,
  input  event_t      event_i [Channels],
  output logic [63:0] stat_o  [StatWords]
);
  typedef logic [1:0] amount_t;

  logic [63:0] stat_q [StatWords];
  logic [63:0] copy_q [StatWords];
  amount_t of_verdict [8];
  amount_t reads, writes, beats, reports, refused, displaced;
  logic [2:0] saturated;

  always_comb begin
    of_verdict = '{default: '0};
    reads = '0;
    writes = '0;
    reports = '0;
    refused = '0;
    displaced = '0;
    saturated = '0;
    for (int unsigned c = 0; c < Channels; c++) begin
      of_verdict[event_i[c].verdict] += amount_t'(1);
      reads += amount_t'(event_i[c].beat && !event_i[c].write);
      writes += amount_t'(event_i[c].beat && event_i[c].write);
      reports += amount_t'(event_i[c].report);
      refused += amount_t'(event_i[c].refused);
      saturated += 3'(event_i[c].saturated);
      displaced += amount_t'(event_i[c].displaced);
    end
    beats = reads + writes;
  end

  // In the cycle of a strobe, the events are those of requests after it.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      stat_q <= '{default: '0};
    end else begin
      stat_q[StatCycles] <= stat_q[StatCycles] + 64'd1;
      stat_q[StatBusy] <= stat_q[StatBusy] + 64'(beats != '0);
      stat_q[StatReads] <= stat_q[StatReads] + 64'(reads);
      stat_q[StatWrites] <= stat_q[StatWrites] + 64'(writes);
      stat_q[StatOffered] <= stat_q[StatOffered] + 64'(of_verdict[VerdictCount]) +
          64'(of_verdict[VerdictType]) + 64'(of_verdict[VerdictRange]) +
          64'(of_verdict[VerdictSample]) + 64'(of_verdict[VerdictRun]);
      stat_q[StatCounted] <= stat_q[StatCounted] + 64'(of_verdict[VerdictCount]);
      stat_q[StatSkipType] <= stat_q[StatSkipType] + 64'(of_verdict[VerdictType]);
      stat_q[StatSkipRange] <= stat_q[StatSkipRange] + 64'(of_verdict[VerdictRange]);
      stat_q[StatSkipSample] <= stat_q[StatSkipSample] + 64'(of_verdict[VerdictSample]);
      stat_q[StatSkipRun] <= stat_q[StatSkipRun] + 64'(of_verdict[VerdictRun]);
      stat_q[StatReports] <= stat_q[StatReports] + 64'(reports);
      stat_q[StatRefused] <= stat_q[StatRefused] + 64'(refused);
      stat_q[StatSaturated] <= stat_q[StatSaturated] + 64'(saturated);
      stat_q[StatDisplaced] <= stat_q[StatDisplaced] + 64'(displaced);
      stat_q[StatSequence] <= stat_q[StatSequence] + 64'(snapshot_i);
      if (epoch_i) stat_q[StatEpochStart] <= stat_q[StatOffered];
      if (applied_i) stat_q[StatAppliedAt] <= stat_q[StatOffered];
      if (clear_i) begin
        // The pipeline is empty and the unit disabled: only the state monitor may see requests.
        for (int unsigned s = 0; s < StatWords; s++) begin
          if (stat_e'(s) != StatSequence) stat_q[s] <= '0;
        end
        stat_q[StatCycles] <= 64'd1;
        stat_q[StatBusy] <= 64'(beats != '0);
        stat_q[StatReads] <= 64'(reads);
        stat_q[StatWrites] <= 64'(writes);
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      copy_q <= '{default: '0};
    end else if (snapshot_i) begin
      copy_q <= stat_q;
      copy_q[StatSequence] <= stat_q[StatSequence] + 64'd1;
      copy_q[StatEpoch] <= 64'(epoch_number_i);
    end
  end

  assign stat_o = copy_q;

`ifndef SYNTHESIS
  NothingLost: assert property (@(posedge clk_i) disable iff (!rst_ni)
      stat_q[StatOffered] == stat_q[StatCounted] + stat_q[StatSkipType] + stat_q[StatSkipRange] +
      stat_q[StatSkipSample] + stat_q[StatSkipRun])
    else $error("np_stats: a request is in no count or in two");
`endif
endmodule
