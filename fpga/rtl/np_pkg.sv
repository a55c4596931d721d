// SPDX-License-Identifier: Apache-2.0
// Constants and types that more than one module of the card uses.
package np_pkg;
  localparam int unsigned Channels = 2;      // request channels, one request each per clock
  localparam int unsigned Rows = 2;          // rows of the sketch (D)
  localparam int unsigned AddrW = 44;        // device physical address on a channel
  localparam int unsigned KeyW = 32;         // unit number: AddrW - MinUnitLog2
  localparam int unsigned CntW = 16;         // counter, and count in a hot list entry
  localparam int unsigned TagW = 48;         // epoch number
  localparam int unsigned GroupLog2 = 4;     // entries that share one epoch tag: 16
  localparam int unsigned GroupSize = 1 << GroupLog2;
  localparam int unsigned EntryW = 64;       // hot list entry
  localparam int unsigned HistBins = 64;
  localparam int unsigned BinW = 6;
  localparam int unsigned LineLog2 = 6;      // 64 B, what a request is for
  localparam int unsigned MinUnitLog2 = 12;  // 4 KiB
  localparam int unsigned MaxUnitLog2 = 21;  // 2 MiB
  localparam int unsigned RangeLog2 = 28;    // one bit of the range bitmap: 256 MiB
  localparam int unsigned RangeWords = 64;   // 64-bit words of the range bitmap
  localparam int unsigned CapacityLog2 = 40; // RangeWords x 64 x 256 MiB = 1 TiB
  localparam int unsigned TickW = 26;        // 4095 x 10^4 units of 100 us
  localparam int unsigned CoalesceLog2 = 8;  // entries of a table of runs: 256
  localparam int unsigned CoalesceTables = 2;
  localparam int unsigned CoalesceReach = 4;   // lines from one request of a run to the next
  localparam int unsigned StatWords = 18;    // registers of the snapshot block
  localparam int unsigned WaysLog2 = 3;      // entries in a set of the table: 8
  localparam int unsigned Ways = 1 << WaysLog2;
  localparam int unsigned PartLog2 = 6;      // parts of a unit that an entry has a bit for: 64
  localparam int unsigned Parts = 1 << PartLog2;
  localparam int unsigned PartReach = 8;     // parts from one request of a use to another

  typedef logic [AddrW-1:0] addr_t;
  typedef logic [AddrW-LineLog2-1:0] line_t;
  typedef logic [CoalesceLog2-1:0] slot_t;
  typedef logic [KeyW-1:0] key_t;
  typedef logic [CntW-1:0] cnt_t;
  typedef logic [TagW-1:0] tag_t;
  typedef logic [GroupSize-1:0] group_t;
  typedef logic [BinW-1:0] bin_t;
  typedef logic [PartLog2-1:0] part_t;
  typedef logic [Parts-1:0] parts_t;
  typedef logic [7:0] window_t;

  // Parts of a unit that were touched lately.
  typedef struct packed {
    parts_t  parts;
    part_t   seen;    // requests since the first of them; 0: there is none
    window_t window;  // in which they came
  } touched_t;

  // An entry of the table but for its tag, whose width is a parameter's.
  typedef struct packed {
    logic     hot;
    cnt_t     count;  // 0: free
    touched_t touched;
  } way_t;

  // What became of a request. None: there was none, or the unit was not enabled.
  typedef enum logic [2:0] {
    VerdictNone,
    VerdictCount,
    VerdictType,
    VerdictRange,
    VerdictSample,
    VerdictRun
  } verdict_e;

  // A request on its way to the sketch. beat and write are for the state monitor: they are set
  // for every request on the wires, whether the unit is enabled or not.
  typedef struct packed {
    verdict_e verdict;
    logic     beat;
    logic     write;
    key_t     key;
    part_t    part;  // which 64th of the unit
  } item_t;

  // What the sketch did with an item, for statistics and histogram.
  typedef struct packed {
    verdict_e   verdict;
    logic       beat;
    logic       write;
    logic [1:0] saturated;  // increments not made, 0 to 2
    logic       displaced;  // its set of the table was full
    logic       entered;    // a row-0 counter entered a bin from below
    logic       left;       // or it left it downwards
    bin_t       bin;        // that bin
    logic       report;
    logic       refused;
  } event_t;

  // Configuration as the datapath wants it: checked and decoded on the register side.
  typedef struct packed {
    logic             track_read;
    logic             track_write;
    logic             random;
    logic             conservative;
    logic             coalesce;
    logic             by_parts;
    logic [15:0]      use_window;  // of 5 us; 0: for ever
    logic [15:0]      run_window;  // of 100 us; 0: for ever
    logic             epoch_mode;
    logic [3:0]       unit_shift;  // log2(unit) - MinUnitLog2
    logic [3:0]       downsample;  // one in 2^n
    logic [TickW-1:0] epoch_ticks;
    cnt_t             threshold;
  } cfg_t;

  typedef enum logic [2:0] {
    OpEnable,
    OpDisable,
    OpReset,
    OpThreshold,
    OpHead,
    OpClear,
    OpSnapshot,
    OpSnapshotClear  // both at one moment: the snapshot is of all before the new epoch
  } op_e;

  // Command from the register side. cfg.threshold alone is used by OpThreshold, head by OpHead.
  typedef struct packed {
    op_e         op;
    logic [15:0] head;
    cfg_t        cfg;
  } cmd_t;

  // Words of a snapshot, in the order of the register block.
  typedef enum logic [4:0] {
    StatSequence,
    StatCycles,
    StatBusy,
    StatReads,
    StatWrites,
    StatOffered,
    StatCounted,
    StatSkipType,
    StatSkipRange,
    StatSkipSample,
    StatReports,
    StatRefused,
    StatSaturated,
    StatEpoch,
    StatEpochStart,
    StatAppliedAt,
    StatSkipRun,
    StatDisplaced
  } stat_e;

  // The histogram is a floating-point code: with v + 8 = 2^(g+3) x 1.jjj, bin = 8 g + j.
  function automatic bin_t hist_bin(cnt_t value);
    logic [CntW:0] biased;
    biased = {1'b0, value} + 17'd8;
    hist_bin = '1;
    for (int unsigned g = 0; g < 8; g++) begin
      if ((biased >> (g + 3)) == 17'd1) hist_bin = {3'(g), biased[g+:3]};
    end
  endfunction

  // True if value is the lower edge of a bin other than bin 0.
  function automatic logic hist_is_edge(cnt_t value);
    logic [CntW:0] biased;
    logic [CntW:0] below;
    biased = {1'b0, value} + 17'd8;
    hist_is_edge = 1'b0;
    for (int unsigned g = 0; g < 8; g++) begin
      below = (17'd1 << g) - 17'd1;
      if ((biased >> (g + 3)) == 17'd1) hist_is_edge = (biased & below) == '0;
    end
  endfunction

  function automatic cnt_t hist_low(bin_t bin);
    hist_low = cnt_t'(((16'd8 | 16'(bin[2:0])) << bin[5:3]) - 16'd8);
  endfunction

  function automatic cnt_t hist_high(bin_t bin);
    hist_high = (bin == '1) ? '1 : hist_low(bin + 6'd1) - 16'd1;
  endfunction
endpackage
