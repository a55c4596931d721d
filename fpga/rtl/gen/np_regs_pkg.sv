// SPDX-License-Identifier: Apache-2.0
// Generated from fpga/regs/neoprof.rdl by fpga/regs/generate.py.
package np_regs_pkg;

    localparam NP_REGS_DATA_WIDTH = 64;
    localparam NP_REGS_MIN_ADDR_WIDTH = 16;
    localparam NP_REGS_SIZE = 'h10000;

    typedef struct {
        logic [15:0] next;
    } chmu_instance__cap0__hotlist_size__in_t;

    typedef struct {
        chmu_instance__cap0__hotlist_size__in_t hotlist_size;
    } chmu_instance__cap0__in_t;

    typedef struct {
        logic hwclr;
    } chmu_instance__cfg0__enable__in_t;

    typedef struct {
        chmu_instance__cfg0__enable__in_t enable;
    } chmu_instance__cfg0__in_t;

    typedef struct {
        logic next;
    } chmu_instance__status__enabled__in_t;

    typedef struct {
        logic [15:0] next;
    } chmu_instance__status__operation__in_t;

    typedef struct {
        logic hwclr;
        logic hwset;
    } chmu_instance__status__overflow__in_t;

    typedef struct {
        logic hwclr;
        logic hwset;
    } chmu_instance__status__fill__in_t;

    typedef struct {
        chmu_instance__status__enabled__in_t enabled;
        chmu_instance__status__operation__in_t operation;
        chmu_instance__status__overflow__in_t overflow;
        chmu_instance__status__fill__in_t fill;
    } chmu_instance__status__in_t;

    typedef struct {
        logic [15:0] next;
        logic we;
    } chmu_instance__hotlist__head__in_t;

    typedef struct {
        logic [15:0] next;
    } chmu_instance__hotlist__tail__in_t;

    typedef struct {
        chmu_instance__hotlist__head__in_t head;
        chmu_instance__hotlist__tail__in_t tail;
    } chmu_instance__hotlist__in_t;

    typedef struct {
        chmu_instance__cap0__in_t cap0;
        chmu_instance__cfg0__in_t cfg0;
        chmu_instance__status__in_t status;
        chmu_instance__hotlist__in_t hotlist;
    } chmu_instance__in_t;

    typedef struct {
        logic [7:0] next;
    } vendor_block__geometry__depth__in_t;

    typedef struct {
        logic [7:0] next;
    } vendor_block__geometry__log2_width__in_t;

    typedef struct {
        logic [7:0] next;
    } vendor_block__geometry__counter_width__in_t;

    typedef struct {
        logic [7:0] next;
    } vendor_block__geometry__channels__in_t;

    typedef struct {
        logic [7:0] next;
    } vendor_block__geometry__histogram_bins__in_t;

    typedef struct {
        logic [7:0] next;
    } vendor_block__geometry__epoch_width__in_t;

    typedef struct {
        logic [7:0] next;
    } vendor_block__geometry__log2_capacity__in_t;

    typedef struct {
        logic [7:0] next;
    } vendor_block__geometry__log2_runs__in_t;

    typedef struct {
        vendor_block__geometry__depth__in_t depth;
        vendor_block__geometry__log2_width__in_t log2_width;
        vendor_block__geometry__counter_width__in_t counter_width;
        vendor_block__geometry__channels__in_t channels;
        vendor_block__geometry__histogram_bins__in_t histogram_bins;
        vendor_block__geometry__epoch_width__in_t epoch_width;
        vendor_block__geometry__log2_capacity__in_t log2_capacity;
        vendor_block__geometry__log2_runs__in_t log2_runs;
    } vendor_block__geometry__in_t;

    typedef struct {
        logic [31:0] next;
    } vendor_block__timebase__cycles_per_100us__in_t;

    typedef struct {
        vendor_block__timebase__cycles_per_100us__in_t cycles_per_100us;
    } vendor_block__timebase__in_t;

    typedef struct {
        logic next;
    } vendor_block__status__initialising__in_t;

    typedef struct {
        logic next;
    } vendor_block__status__clear_pending__in_t;

    typedef struct {
        logic next;
    } vendor_block__status__snapshot_pending__in_t;

    typedef struct {
        logic next;
    } vendor_block__status__head_pending__in_t;

    typedef struct {
        logic next;
    } vendor_block__status__threshold_pending__in_t;

    typedef struct {
        vendor_block__status__initialising__in_t initialising;
        vendor_block__status__clear_pending__in_t clear_pending;
        vendor_block__status__snapshot_pending__in_t snapshot_pending;
        vendor_block__status__head_pending__in_t head_pending;
        vendor_block__status__threshold_pending__in_t threshold_pending;
    } vendor_block__status__in_t;

    typedef struct {
        logic hwset;
    } vendor_block__config_error__what__in_t;

    typedef struct {
        logic hwset;
    } vendor_block__config_error__unit_size__in_t;

    typedef struct {
        logic hwset;
    } vendor_block__config_error__downsampling__in_t;

    typedef struct {
        logic hwset;
    } vendor_block__config_error__mode__in_t;

    typedef struct {
        logic hwset;
    } vendor_block__config_error__epoch__in_t;

    typedef struct {
        logic hwset;
    } vendor_block__config_error__threshold__in_t;

    typedef struct {
        logic hwset;
    } vendor_block__config_error__head__in_t;

    typedef struct {
        logic hwset;
    } vendor_block__config_error__error_rank__in_t;

    typedef struct {
        logic hwset;
    } vendor_block__config_error__range_locked__in_t;

    typedef struct {
        vendor_block__config_error__what__in_t what;
        vendor_block__config_error__unit_size__in_t unit_size;
        vendor_block__config_error__downsampling__in_t downsampling;
        vendor_block__config_error__mode__in_t mode;
        vendor_block__config_error__epoch__in_t epoch;
        vendor_block__config_error__threshold__in_t threshold;
        vendor_block__config_error__head__in_t head;
        vendor_block__config_error__error_rank__in_t error_rank;
        vendor_block__config_error__range_locked__in_t range_locked;
    } vendor_block__config_error__in_t;

    typedef struct {
        logic [31:0] next;
        logic we;
    } vendor_block__error_rank__rank__in_t;

    typedef struct {
        vendor_block__error_rank__rank__in_t rank;
    } vendor_block__error_rank__in_t;

    typedef struct {
        logic [15:0] next;
    } vendor_block__error_bound__low__in_t;

    typedef struct {
        logic [15:0] next;
    } vendor_block__error_bound__high__in_t;

    typedef struct {
        logic [5:0] next;
    } vendor_block__error_bound__bin__in_t;

    typedef struct {
        logic next;
    } vendor_block__error_bound__valid__in_t;

    typedef struct {
        vendor_block__error_bound__low__in_t low;
        vendor_block__error_bound__high__in_t high;
        vendor_block__error_bound__bin__in_t bin;
        vendor_block__error_bound__valid__in_t valid;
    } vendor_block__error_bound__in_t;

    typedef struct {
        logic incr;
        logic [1:0] incrvalue;
    } vendor_block__bus_errors__count__in_t;

    typedef struct {
        vendor_block__bus_errors__count__in_t count;
    } vendor_block__bus_errors__in_t;

    typedef struct {
        logic [15:0] next;
    } vendor_block__threshold_in_force__threshold__in_t;

    typedef struct {
        vendor_block__threshold_in_force__threshold__in_t threshold;
    } vendor_block__threshold_in_force__in_t;

    typedef struct {
        logic [7:0] next;
    } vendor_block__tracker__kind__in_t;

    typedef struct {
        logic [7:0] next;
    } vendor_block__tracker__ways__in_t;

    typedef struct {
        logic [7:0] next;
    } vendor_block__tracker__parts__in_t;

    typedef struct {
        vendor_block__tracker__kind__in_t kind;
        vendor_block__tracker__ways__in_t ways;
        vendor_block__tracker__parts__in_t parts;
    } vendor_block__tracker__in_t;

    typedef struct {
        vendor_block__geometry__in_t geometry;
        vendor_block__timebase__in_t timebase;
        vendor_block__status__in_t status;
        vendor_block__config_error__in_t config_error;
        vendor_block__error_rank__in_t error_rank;
        vendor_block__error_bound__in_t error_bound;
        vendor_block__bus_errors__in_t bus_errors;
        vendor_block__threshold_in_force__in_t threshold_in_force;
        vendor_block__tracker__in_t tracker;
    } vendor_block__in_t;

    typedef struct {
        logic rd_ack;
        logic [63:0] rd_data;
        logic wr_ack;
    } snapshot_block__external__in_t;

    typedef struct {
        logic rd_ack;
        logic [63:0] rd_data;
        logic wr_ack;
    } histogram_block__external__in_t;

    typedef struct {
        logic rd_ack;
        logic [63:0] rd_data;
        logic wr_ack;
    } range_mem__external__in_t;

    typedef struct {
        logic rd_ack;
        logic [63:0] rd_data;
        logic wr_ack;
    } hotlist_mem__external__in_t;

    typedef struct {
        chmu_instance__in_t chmu0;
        vendor_block__in_t vendor;
        snapshot_block__external__in_t snapshot;
        histogram_block__external__in_t histogram;
        range_mem__external__in_t range_bitmap;
        hotlist_mem__external__in_t hotlist;
    } neoprof__in_t;

    typedef struct {
        logic [7:0] value;
    } chmu_instance__cfg0__what__out_t;

    typedef struct {
        logic value;
    } chmu_instance__cfg0__random_downsampling__out_t;

    typedef struct {
        logic value;
    } chmu_instance__cfg0__overflow_int_enable__out_t;

    typedef struct {
        logic value;
    } chmu_instance__cfg0__fill_int_enable__out_t;

    typedef struct {
        logic value;
    } chmu_instance__cfg0__enable__out_t;

    typedef struct {
        logic value;
    } chmu_instance__cfg0__reset__out_t;

    typedef struct {
        logic [31:0] value;
    } chmu_instance__cfg0__threshold__out_t;

    typedef struct {
        chmu_instance__cfg0__what__out_t what;
        chmu_instance__cfg0__random_downsampling__out_t random_downsampling;
        chmu_instance__cfg0__overflow_int_enable__out_t overflow_int_enable;
        chmu_instance__cfg0__fill_int_enable__out_t fill_int_enable;
        chmu_instance__cfg0__enable__out_t enable;
        chmu_instance__cfg0__reset__out_t reset;
        chmu_instance__cfg0__threshold__out_t threshold;
    } chmu_instance__cfg0__out_t;

    typedef struct {
        logic [31:0] value;
    } chmu_instance__cfg1__unit_size__out_t;

    typedef struct {
        logic [7:0] value;
    } chmu_instance__cfg1__downsampling__out_t;

    typedef struct {
        logic [7:0] value;
    } chmu_instance__cfg1__mode__out_t;

    typedef struct {
        logic [3:0] value;
    } chmu_instance__cfg1__epoch_scale__out_t;

    typedef struct {
        logic [11:0] value;
    } chmu_instance__cfg1__epoch_multiplier__out_t;

    typedef struct {
        chmu_instance__cfg1__unit_size__out_t unit_size;
        chmu_instance__cfg1__downsampling__out_t downsampling;
        chmu_instance__cfg1__mode__out_t mode;
        chmu_instance__cfg1__epoch_scale__out_t epoch_scale;
        chmu_instance__cfg1__epoch_multiplier__out_t epoch_multiplier;
    } chmu_instance__cfg1__out_t;

    typedef struct {
        logic [15:0] value;
    } chmu_instance__cfg2__fill_threshold__out_t;

    typedef struct {
        chmu_instance__cfg2__fill_threshold__out_t fill_threshold;
    } chmu_instance__cfg2__out_t;

    typedef struct {
        logic value;
    } chmu_instance__status__overflow__out_t;

    typedef struct {
        logic value;
    } chmu_instance__status__fill__out_t;

    typedef struct {
        chmu_instance__status__overflow__out_t overflow;
        chmu_instance__status__fill__out_t fill;
    } chmu_instance__status__out_t;

    typedef struct {
        logic [15:0] value;
        logic swmod;
    } chmu_instance__hotlist__head__out_t;

    typedef struct {
        chmu_instance__hotlist__head__out_t head;
    } chmu_instance__hotlist__out_t;

    typedef struct {
        chmu_instance__cfg0__out_t cfg0;
        chmu_instance__cfg1__out_t cfg1;
        chmu_instance__cfg2__out_t cfg2;
        chmu_instance__status__out_t status;
        chmu_instance__hotlist__out_t hotlist;
    } chmu_instance__out_t;

    typedef struct {
        logic value;
    } vendor_block__config__conservative__out_t;

    typedef struct {
        logic value;
    } vendor_block__config__coalesce__out_t;

    typedef struct {
        logic value;
    } vendor_block__config__by_parts__out_t;

    typedef struct {
        logic [15:0] value;
    } vendor_block__config__run_window__out_t;

    typedef struct {
        logic [15:0] value;
    } vendor_block__config__use_window__out_t;

    typedef struct {
        vendor_block__config__conservative__out_t conservative;
        vendor_block__config__coalesce__out_t coalesce;
        vendor_block__config__by_parts__out_t by_parts;
        vendor_block__config__run_window__out_t run_window;
        vendor_block__config__use_window__out_t use_window;
    } vendor_block__config__out_t;

    typedef struct {
        logic value;
    } vendor_block__command__clear__out_t;

    typedef struct {
        logic value;
    } vendor_block__command__snapshot__out_t;

    typedef struct {
        vendor_block__command__clear__out_t clear;
        vendor_block__command__snapshot__out_t snapshot;
    } vendor_block__command__out_t;

    typedef struct {
        logic [31:0] value;
    } vendor_block__error_rank__rank__out_t;

    typedef struct {
        vendor_block__error_rank__rank__out_t rank;
    } vendor_block__error_rank__out_t;

    typedef struct {
        vendor_block__config__out_t config_;
        vendor_block__command__out_t command;
        vendor_block__error_rank__out_t error_rank;
    } vendor_block__out_t;

    typedef struct {
        logic req;
        logic [7:0] addr;
        logic req_is_wr;
        logic [63:0] wr_data;
        logic [63:0] wr_biten;
    } snapshot_block__external__out_t;

    typedef struct {
        logic req;
        logic [8:0] addr;
        logic req_is_wr;
        logic [63:0] wr_data;
        logic [63:0] wr_biten;
    } histogram_block__external__out_t;

    typedef struct {
        logic req;
        logic [8:0] addr;
        logic req_is_wr;
        logic [63:0] wr_data;
        logic [63:0] wr_biten;
    } range_mem__external__out_t;

    typedef struct {
        logic req;
        logic [14:0] addr;
        logic req_is_wr;
        logic [63:0] wr_data;
        logic [63:0] wr_biten;
    } hotlist_mem__external__out_t;

    typedef struct {
        chmu_instance__out_t chmu0;
        vendor_block__out_t vendor;
        snapshot_block__external__out_t snapshot;
        histogram_block__external__out_t histogram;
        range_mem__external__out_t range_bitmap;
        hotlist_mem__external__out_t hotlist;
    } neoprof__out_t;
endpackage
