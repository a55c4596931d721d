// SPDX-License-Identifier: Apache-2.0
// Generated from fpga/regs/neoprof.rdl by fpga/regs/generate.py.
module np_regs (
        input wire clk,
        input wire arst_n,

        output logic s_axil_awready,
        input wire s_axil_awvalid,
        input wire [15:0] s_axil_awaddr,
        input wire [2:0] s_axil_awprot,
        output logic s_axil_wready,
        input wire s_axil_wvalid,
        input wire [63:0] s_axil_wdata,
        input wire [7:0]s_axil_wstrb,
        input wire s_axil_bready,
        output logic s_axil_bvalid,
        output logic [1:0] s_axil_bresp,
        output logic s_axil_arready,
        input wire s_axil_arvalid,
        input wire [15:0] s_axil_araddr,
        input wire [2:0] s_axil_arprot,
        input wire s_axil_rready,
        output logic s_axil_rvalid,
        output logic [63:0] s_axil_rdata,
        output logic [1:0] s_axil_rresp,

        input np_regs_pkg::neoprof__in_t hwif_in,
        output np_regs_pkg::neoprof__out_t hwif_out
    );

    //--------------------------------------------------------------------------
    // CPU Bus interface logic
    //--------------------------------------------------------------------------
    logic cpuif_req;
    logic cpuif_req_is_wr;
    logic [15:0] cpuif_addr;
    logic [63:0] cpuif_wr_data;
    logic [63:0] cpuif_wr_biten;
    logic cpuif_req_stall_wr;
    logic cpuif_req_stall_rd;

    logic cpuif_rd_ack;
    logic cpuif_rd_err;
    logic [63:0] cpuif_rd_data;

    logic cpuif_wr_ack;
    logic cpuif_wr_err;

    // Max Outstanding Transactions: 2
    logic [1:0] axil_n_in_flight;
    logic axil_prev_was_rd;
    logic axil_arvalid;
    logic [15:0] axil_araddr;
    logic axil_ar_accept;
    logic axil_awvalid;
    logic [15:0] axil_awaddr;
    logic axil_wvalid;
    logic [63:0] axil_wdata;
    logic [7:0] axil_wstrb;
    logic axil_aw_accept;
    logic axil_resp_acked;

    // Transaction request acceptance
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            axil_prev_was_rd <= '0;
            axil_arvalid <= '0;
            axil_araddr <= '0;
            axil_awvalid <= '0;
            axil_awaddr <= '0;
            axil_wvalid <= '0;
            axil_wdata <= '0;
            axil_wstrb <= '0;
            axil_n_in_flight <= '0;
        end else begin
            // AR* acceptance register
            if(axil_ar_accept) begin
                axil_prev_was_rd <= '1;
                axil_arvalid <= '0;
            end
            if(s_axil_arvalid && s_axil_arready) begin
                axil_arvalid <= '1;
                axil_araddr <= s_axil_araddr;
            end

            // AW* & W* acceptance registers
            if(axil_aw_accept) begin
                axil_prev_was_rd <= '0;
                axil_awvalid <= '0;
                axil_wvalid <= '0;
            end
            if(s_axil_awvalid && s_axil_awready) begin
                axil_awvalid <= '1;
                axil_awaddr <= s_axil_awaddr;
            end
            if(s_axil_wvalid && s_axil_wready) begin
                axil_wvalid <= '1;
                axil_wdata <= s_axil_wdata;
                axil_wstrb <= s_axil_wstrb;
            end

            // Keep track of in-flight transactions
            if((axil_ar_accept || axil_aw_accept) && !axil_resp_acked) begin
                axil_n_in_flight <= axil_n_in_flight + 1'b1;
            end else if(!(axil_ar_accept || axil_aw_accept) && axil_resp_acked) begin
                axil_n_in_flight <= axil_n_in_flight - 1'b1;
            end
        end
    end

    always_comb begin
        s_axil_arready = (!axil_arvalid || axil_ar_accept);
        s_axil_awready = (!axil_awvalid || axil_aw_accept);
        s_axil_wready = (!axil_wvalid || axil_aw_accept);
    end

    // Request dispatch
    always_comb begin
        cpuif_wr_data = axil_wdata;
        for(int i=0; i<8; i++) begin
            cpuif_wr_biten[i*8 +: 8] = {8{axil_wstrb[i]}};
        end
        cpuif_req = '0;
        cpuif_req_is_wr = '0;
        cpuif_addr = '0;
        axil_ar_accept = '0;
        axil_aw_accept = '0;

        if(axil_n_in_flight < 2'd2) begin
            // Can safely issue more transactions without overwhelming response buffer
            if(axil_arvalid && !axil_prev_was_rd) begin
                cpuif_req = '1;
                cpuif_req_is_wr = '0;
                cpuif_addr = {axil_araddr[15:3], 3'b0};
                if(!cpuif_req_stall_rd) axil_ar_accept = '1;
            end else if(axil_awvalid && axil_wvalid) begin
                cpuif_req = '1;
                cpuif_req_is_wr = '1;
                cpuif_addr = {axil_awaddr[15:3], 3'b0};
                if(!cpuif_req_stall_wr) axil_aw_accept = '1;
            end else if(axil_arvalid) begin
                cpuif_req = '1;
                cpuif_req_is_wr = '0;
                cpuif_addr = {axil_araddr[15:3], 3'b0};
                if(!cpuif_req_stall_rd) axil_ar_accept = '1;
            end
        end
    end


    // AXI4-Lite Response Logic
    logic axil_resp_buffer_is_wr[2];
    logic axil_resp_buffer_err[2];
    logic [63:0] axil_resp_buffer_rdata[2];

    logic [1:0] axil_resp_wptr;
    logic [1:0] axil_resp_rptr;

    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            for(int i=0; i<2; i++) begin
                axil_resp_buffer_is_wr[i] <= '0;
                axil_resp_buffer_err[i] <= '0;
                axil_resp_buffer_rdata[i] <= '0;
            end
            axil_resp_wptr <= '0;
            axil_resp_rptr <= '0;
        end else begin
            // Store responses in buffer until AXI response channel accepts them
            if(cpuif_rd_ack || cpuif_wr_ack) begin
                if(cpuif_rd_ack) begin
                    axil_resp_buffer_is_wr[axil_resp_wptr[0:0]] <= '0;
                    axil_resp_buffer_err[axil_resp_wptr[0:0]] <= cpuif_rd_err;
                    axil_resp_buffer_rdata[axil_resp_wptr[0:0]] <= cpuif_rd_data;

                end else if(cpuif_wr_ack) begin
                    axil_resp_buffer_is_wr[axil_resp_wptr[0:0]] <= '1;
                    axil_resp_buffer_err[axil_resp_wptr[0:0]] <= cpuif_wr_err;
                end
                axil_resp_wptr <= axil_resp_wptr + 1'b1;
            end

            // Advance read pointer when acknowledged
            if(axil_resp_acked) begin
                axil_resp_rptr <= axil_resp_rptr + 1'b1;
            end
        end
    end

    always_comb begin
        axil_resp_acked = '0;
        s_axil_bvalid = '0;
        s_axil_rvalid = '0;
        if(axil_resp_rptr != axil_resp_wptr) begin
            if(axil_resp_buffer_is_wr[axil_resp_rptr[0:0]]) begin
                s_axil_bvalid = '1;
                if(s_axil_bready) axil_resp_acked = '1;
            end else begin
                s_axil_rvalid = '1;
                if(s_axil_rready) axil_resp_acked = '1;
            end
        end

        s_axil_rdata = axil_resp_buffer_rdata[axil_resp_rptr[0:0]];
        if(axil_resp_buffer_err[axil_resp_rptr[0:0]]) begin
            s_axil_bresp = 2'b10;
            s_axil_rresp = 2'b10;
        end else begin
            s_axil_bresp = 2'b00;
            s_axil_rresp = 2'b00;
        end
    end

    logic cpuif_req_masked;
    logic external_pending;

    // Read & write latencies are balanced. Stalls not required
    // except if external
    assign cpuif_req_stall_rd = external_pending;
    assign cpuif_req_stall_wr = external_pending;
    assign cpuif_req_masked = cpuif_req
                            & !(!cpuif_req_is_wr & cpuif_req_stall_rd)
                            & !(cpuif_req_is_wr & cpuif_req_stall_wr);

    //--------------------------------------------------------------------------
    // Address Decode
    //--------------------------------------------------------------------------
    typedef struct {
        struct {
            logic cap0;
            logic cap1;
        } chmu;
        struct {
            logic cap0;
            logic cap1;
            logic range_bitmap_offset;
            logic hotlist_offset;
            logic cfg0;
            logic cfg1;
            logic cfg2;
            logic status;
            logic hotlist;
        } chmu0;
        struct {
            logic id;
            logic geometry;
            logic timebase;
            logic config_;
            logic command;
            logic status;
            logic config_error;
            logic error_rank;
            logic error_bound;
            logic bus_errors;
            logic threshold_in_force;
            logic tracker;
        } vendor;
        logic snapshot;
        logic histogram;
        logic range_bitmap;
        logic range_guard;
        logic hotlist;
    } decoded_reg_strb_t;
    decoded_reg_strb_t decoded_reg_strb;
    logic decoded_err;
    logic decoded_req_is_external;

    logic [15:0] decoded_addr;
    logic decoded_req;
    logic decoded_req_is_wr;
    logic [63:0] decoded_wr_data;
    logic [63:0] decoded_wr_biten;

    always_comb begin
        automatic logic is_valid_addr;
        automatic logic is_valid_rw;
        automatic logic is_external;
        is_external = '0;
        is_valid_addr = '0;
        is_valid_rw = '0;
        decoded_reg_strb.chmu.cap0 = cpuif_req_masked & (cpuif_addr == 16'h0) & !cpuif_req_is_wr;
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h0);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h0) & !cpuif_req_is_wr;
        decoded_reg_strb.chmu.cap1 = cpuif_req_masked & (cpuif_addr == 16'h8) & !cpuif_req_is_wr;
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h8);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h8) & !cpuif_req_is_wr;
        decoded_reg_strb.chmu0.cap0 = cpuif_req_masked & (cpuif_addr == 16'h10) & !cpuif_req_is_wr;
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h10);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h10) & !cpuif_req_is_wr;
        decoded_reg_strb.chmu0.cap1 = cpuif_req_masked & (cpuif_addr == 16'h18) & !cpuif_req_is_wr;
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h18);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h18) & !cpuif_req_is_wr;
        decoded_reg_strb.chmu0.range_bitmap_offset = cpuif_req_masked & (cpuif_addr == 16'h20) & !cpuif_req_is_wr;
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h20);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h20) & !cpuif_req_is_wr;
        decoded_reg_strb.chmu0.hotlist_offset = cpuif_req_masked & (cpuif_addr == 16'h28) & !cpuif_req_is_wr;
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h28);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h28) & !cpuif_req_is_wr;
        decoded_reg_strb.chmu0.cfg0 = cpuif_req_masked & (cpuif_addr == 16'h50);
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h50);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h50);
        decoded_reg_strb.chmu0.cfg1 = cpuif_req_masked & (cpuif_addr == 16'h58);
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h58);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h58);
        decoded_reg_strb.chmu0.cfg2 = cpuif_req_masked & (cpuif_addr == 16'h60);
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h60);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h60);
        decoded_reg_strb.chmu0.status = cpuif_req_masked & (cpuif_addr == 16'h70);
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h70);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h70);
        decoded_reg_strb.chmu0.hotlist = cpuif_req_masked & (cpuif_addr == 16'h78);
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h78);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h78);
        decoded_reg_strb.vendor.id = cpuif_req_masked & (cpuif_addr == 16'h1000) & !cpuif_req_is_wr;
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h1000);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h1000) & !cpuif_req_is_wr;
        decoded_reg_strb.vendor.geometry = cpuif_req_masked & (cpuif_addr == 16'h1008) & !cpuif_req_is_wr;
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h1008);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h1008) & !cpuif_req_is_wr;
        decoded_reg_strb.vendor.timebase = cpuif_req_masked & (cpuif_addr == 16'h1010) & !cpuif_req_is_wr;
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h1010);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h1010) & !cpuif_req_is_wr;
        decoded_reg_strb.vendor.config_ = cpuif_req_masked & (cpuif_addr == 16'h1018);
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h1018);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h1018);
        decoded_reg_strb.vendor.command = cpuif_req_masked & (cpuif_addr == 16'h1020);
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h1020);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h1020);
        decoded_reg_strb.vendor.status = cpuif_req_masked & (cpuif_addr == 16'h1028) & !cpuif_req_is_wr;
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h1028);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h1028) & !cpuif_req_is_wr;
        decoded_reg_strb.vendor.config_error = cpuif_req_masked & (cpuif_addr == 16'h1030);
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h1030);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h1030);
        decoded_reg_strb.vendor.error_rank = cpuif_req_masked & (cpuif_addr == 16'h1038);
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h1038);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h1038);
        decoded_reg_strb.vendor.error_bound = cpuif_req_masked & (cpuif_addr == 16'h1040) & !cpuif_req_is_wr;
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h1040);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h1040) & !cpuif_req_is_wr;
        decoded_reg_strb.vendor.bus_errors = cpuif_req_masked & (cpuif_addr == 16'h1048);
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h1048);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h1048);
        decoded_reg_strb.vendor.threshold_in_force = cpuif_req_masked & (cpuif_addr == 16'h1050) & !cpuif_req_is_wr;
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h1050);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h1050) & !cpuif_req_is_wr;
        decoded_reg_strb.vendor.tracker = cpuif_req_masked & (cpuif_addr == 16'h1058) & !cpuif_req_is_wr;
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h1058);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h1058) & !cpuif_req_is_wr;
        decoded_reg_strb.snapshot = cpuif_req_masked & (cpuif_addr >= 16'h1100) & (cpuif_addr <= 16'h1100 + 16'h8f);
        is_external |= cpuif_req_masked & (cpuif_addr >= 16'h1100) & (cpuif_addr <= 16'h1100 + 16'h8f);
        is_valid_addr |= cpuif_req_masked & (cpuif_addr >= 16'h1100) & (cpuif_addr <= 16'h1100 + 16'h8f);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr >= 16'h1100) & (cpuif_addr <= 16'h1100 + 16'h8f);
        decoded_reg_strb.histogram = cpuif_req_masked & (cpuif_addr >= 16'h1200) & (cpuif_addr <= 16'h1200 + 16'h1ff);
        is_external |= cpuif_req_masked & (cpuif_addr >= 16'h1200) & (cpuif_addr <= 16'h1200 + 16'h1ff);
        is_valid_addr |= cpuif_req_masked & (cpuif_addr >= 16'h1200) & (cpuif_addr <= 16'h1200 + 16'h1ff);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr >= 16'h1200) & (cpuif_addr <= 16'h1200 + 16'h1ff);
        decoded_reg_strb.range_bitmap = cpuif_req_masked & (cpuif_addr >= 16'h2000) & (cpuif_addr <= 16'h2000 + 16'h1ff);
        is_external |= cpuif_req_masked & (cpuif_addr >= 16'h2000) & (cpuif_addr <= 16'h2000 + 16'h1ff);
        is_valid_addr |= cpuif_req_masked & (cpuif_addr >= 16'h2000) & (cpuif_addr <= 16'h2000 + 16'h1ff);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr >= 16'h2000) & (cpuif_addr <= 16'h2000 + 16'h1ff);
        decoded_reg_strb.range_guard = cpuif_req_masked & (cpuif_addr == 16'h2200);
        is_valid_addr |= cpuif_req_masked & (cpuif_addr == 16'h2200);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr == 16'h2200);
        decoded_reg_strb.hotlist = cpuif_req_masked & (cpuif_addr >= 16'h8000) & (cpuif_addr <= 16'h8000 + 16'h7fff) & !cpuif_req_is_wr;
        is_external |= cpuif_req_masked & (cpuif_addr >= 16'h8000) & (cpuif_addr <= 16'h8000 + 16'h7fff) & !cpuif_req_is_wr;
        is_valid_addr |= cpuif_req_masked & (cpuif_addr >= 16'h8000) & (cpuif_addr <= 16'h8000 + 16'h7fff);
        is_valid_rw |= cpuif_req_masked & (cpuif_addr >= 16'h8000) & (cpuif_addr <= 16'h8000 + 16'h7fff) & !cpuif_req_is_wr;
        decoded_err = (~is_valid_addr | (is_valid_addr & ~is_valid_rw)) & decoded_req;
        decoded_req_is_external = is_external;
    end
    logic external_wr_ack;
    logic external_rd_ack;
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            external_pending <= '0;
        end else begin
            if(decoded_req_is_external & ~external_wr_ack & ~external_rd_ack) external_pending <= '1;
            else if(external_wr_ack | external_rd_ack) external_pending <= '0;
            `ifndef SYNTHESIS
                assert_bad_ext_wr_ack: assert(!external_wr_ack || (external_pending | decoded_req_is_external))
                    else $error("An external wr_ack strobe was asserted when no external request was active");
                assert_bad_ext_rd_ack: assert(!external_rd_ack || (external_pending | decoded_req_is_external))
                    else $error("An external rd_ack strobe was asserted when no external request was active");
            `endif
        end
    end

    // Pass down signals to next stage
    assign decoded_addr = cpuif_addr;
    assign decoded_req = cpuif_req_masked;
    assign decoded_req_is_wr = cpuif_req_is_wr;
    assign decoded_wr_data = cpuif_wr_data;
    assign decoded_wr_biten = cpuif_wr_biten;

    //--------------------------------------------------------------------------
    // Field logic
    //--------------------------------------------------------------------------
    typedef struct {
        struct {
            struct {
                struct {
                    logic [7:0] next;
                    logic load_next;
                } what;
                struct {
                    logic next;
                    logic load_next;
                } random_downsampling;
                struct {
                    logic next;
                    logic load_next;
                } overflow_int_enable;
                struct {
                    logic next;
                    logic load_next;
                } fill_int_enable;
                struct {
                    logic next;
                    logic load_next;
                } enable;
                struct {
                    logic next;
                    logic load_next;
                } reset;
                struct {
                    logic [31:0] next;
                    logic load_next;
                } threshold;
            } cfg0;
            struct {
                struct {
                    logic [31:0] next;
                    logic load_next;
                } unit_size;
                struct {
                    logic [7:0] next;
                    logic load_next;
                } downsampling;
                struct {
                    logic [7:0] next;
                    logic load_next;
                } mode;
                struct {
                    logic [3:0] next;
                    logic load_next;
                } epoch_scale;
                struct {
                    logic [11:0] next;
                    logic load_next;
                } epoch_multiplier;
            } cfg1;
            struct {
                struct {
                    logic [15:0] next;
                    logic load_next;
                } fill_threshold;
            } cfg2;
            struct {
                struct {
                    logic next;
                    logic load_next;
                } overflow;
                struct {
                    logic next;
                    logic load_next;
                } fill;
            } status;
            struct {
                struct {
                    logic [15:0] next;
                    logic load_next;
                } head;
            } hotlist;
        } chmu0;
        struct {
            struct {
                struct {
                    logic next;
                    logic load_next;
                } conservative;
                struct {
                    logic next;
                    logic load_next;
                } coalesce;
                struct {
                    logic next;
                    logic load_next;
                } by_parts;
                struct {
                    logic [15:0] next;
                    logic load_next;
                } run_window;
                struct {
                    logic [15:0] next;
                    logic load_next;
                } use_window;
            } config_;
            struct {
                struct {
                    logic next;
                    logic load_next;
                } clear;
                struct {
                    logic next;
                    logic load_next;
                } snapshot;
            } command;
            struct {
                struct {
                    logic next;
                    logic load_next;
                } what;
                struct {
                    logic next;
                    logic load_next;
                } unit_size;
                struct {
                    logic next;
                    logic load_next;
                } downsampling;
                struct {
                    logic next;
                    logic load_next;
                } mode;
                struct {
                    logic next;
                    logic load_next;
                } epoch;
                struct {
                    logic next;
                    logic load_next;
                } threshold;
                struct {
                    logic next;
                    logic load_next;
                } head;
                struct {
                    logic next;
                    logic load_next;
                } error_rank;
                struct {
                    logic next;
                    logic load_next;
                } range_locked;
            } config_error;
            struct {
                struct {
                    logic [31:0] next;
                    logic load_next;
                } rank;
            } error_rank;
            struct {
                struct {
                    logic [31:0] next;
                    logic load_next;
                    logic incrthreshold;
                    logic incrsaturate;
                } count;
            } bus_errors;
        } vendor;
        struct {
            struct {
                logic [63:0] next;
                logic load_next;
            } nothing;
        } range_guard;
    } field_combo_t;
    field_combo_t field_combo;

    typedef struct {
        struct {
            struct {
                struct {
                    logic [7:0] value;
                } what;
                struct {
                    logic value;
                } random_downsampling;
                struct {
                    logic value;
                } overflow_int_enable;
                struct {
                    logic value;
                } fill_int_enable;
                struct {
                    logic value;
                } enable;
                struct {
                    logic value;
                } reset;
                struct {
                    logic [31:0] value;
                } threshold;
            } cfg0;
            struct {
                struct {
                    logic [31:0] value;
                } unit_size;
                struct {
                    logic [7:0] value;
                } downsampling;
                struct {
                    logic [7:0] value;
                } mode;
                struct {
                    logic [3:0] value;
                } epoch_scale;
                struct {
                    logic [11:0] value;
                } epoch_multiplier;
            } cfg1;
            struct {
                struct {
                    logic [15:0] value;
                } fill_threshold;
            } cfg2;
            struct {
                struct {
                    logic value;
                } overflow;
                struct {
                    logic value;
                } fill;
            } status;
            struct {
                struct {
                    logic [15:0] value;
                } head;
            } hotlist;
        } chmu0;
        struct {
            struct {
                struct {
                    logic value;
                } conservative;
                struct {
                    logic value;
                } coalesce;
                struct {
                    logic value;
                } by_parts;
                struct {
                    logic [15:0] value;
                } run_window;
                struct {
                    logic [15:0] value;
                } use_window;
            } config_;
            struct {
                struct {
                    logic value;
                } clear;
                struct {
                    logic value;
                } snapshot;
            } command;
            struct {
                struct {
                    logic value;
                } what;
                struct {
                    logic value;
                } unit_size;
                struct {
                    logic value;
                } downsampling;
                struct {
                    logic value;
                } mode;
                struct {
                    logic value;
                } epoch;
                struct {
                    logic value;
                } threshold;
                struct {
                    logic value;
                } head;
                struct {
                    logic value;
                } error_rank;
                struct {
                    logic value;
                } range_locked;
            } config_error;
            struct {
                struct {
                    logic [31:0] value;
                } rank;
            } error_rank;
            struct {
                struct {
                    logic [31:0] value;
                } count;
            } bus_errors;
        } vendor;
        struct {
            struct {
                logic [63:0] value;
            } nothing;
        } range_guard;
    } field_storage_t;
    field_storage_t field_storage;

    // Field: neoprof.chmu0.cfg0.what
    always_comb begin
        automatic logic [7:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.cfg0.what.value;
        load_next_c = '0;
        if(decoded_reg_strb.chmu0.cfg0 && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.chmu0.cfg0.what.value & ~decoded_wr_biten[7:0]) | (decoded_wr_data[7:0] & decoded_wr_biten[7:0]);
            load_next_c = '1;
        end
        field_combo.chmu0.cfg0.what.next = next_c;
        field_combo.chmu0.cfg0.what.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.cfg0.what.value <= 8'h0;
        end else begin
            if(field_combo.chmu0.cfg0.what.load_next) begin
                field_storage.chmu0.cfg0.what.value <= field_combo.chmu0.cfg0.what.next;
            end
        end
    end
    assign hwif_out.chmu0.cfg0.what.value = field_storage.chmu0.cfg0.what.value;
    // Field: neoprof.chmu0.cfg0.random_downsampling
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.cfg0.random_downsampling.value;
        load_next_c = '0;
        if(decoded_reg_strb.chmu0.cfg0 && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.chmu0.cfg0.random_downsampling.value & ~decoded_wr_biten[8:8]) | (decoded_wr_data[8:8] & decoded_wr_biten[8:8]);
            load_next_c = '1;
        end
        field_combo.chmu0.cfg0.random_downsampling.next = next_c;
        field_combo.chmu0.cfg0.random_downsampling.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.cfg0.random_downsampling.value <= 1'h0;
        end else begin
            if(field_combo.chmu0.cfg0.random_downsampling.load_next) begin
                field_storage.chmu0.cfg0.random_downsampling.value <= field_combo.chmu0.cfg0.random_downsampling.next;
            end
        end
    end
    assign hwif_out.chmu0.cfg0.random_downsampling.value = field_storage.chmu0.cfg0.random_downsampling.value;
    // Field: neoprof.chmu0.cfg0.overflow_int_enable
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.cfg0.overflow_int_enable.value;
        load_next_c = '0;
        if(decoded_reg_strb.chmu0.cfg0 && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.chmu0.cfg0.overflow_int_enable.value & ~decoded_wr_biten[9:9]) | (decoded_wr_data[9:9] & decoded_wr_biten[9:9]);
            load_next_c = '1;
        end
        field_combo.chmu0.cfg0.overflow_int_enable.next = next_c;
        field_combo.chmu0.cfg0.overflow_int_enable.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.cfg0.overflow_int_enable.value <= 1'h0;
        end else begin
            if(field_combo.chmu0.cfg0.overflow_int_enable.load_next) begin
                field_storage.chmu0.cfg0.overflow_int_enable.value <= field_combo.chmu0.cfg0.overflow_int_enable.next;
            end
        end
    end
    assign hwif_out.chmu0.cfg0.overflow_int_enable.value = field_storage.chmu0.cfg0.overflow_int_enable.value;
    // Field: neoprof.chmu0.cfg0.fill_int_enable
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.cfg0.fill_int_enable.value;
        load_next_c = '0;
        if(decoded_reg_strb.chmu0.cfg0 && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.chmu0.cfg0.fill_int_enable.value & ~decoded_wr_biten[10:10]) | (decoded_wr_data[10:10] & decoded_wr_biten[10:10]);
            load_next_c = '1;
        end
        field_combo.chmu0.cfg0.fill_int_enable.next = next_c;
        field_combo.chmu0.cfg0.fill_int_enable.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.cfg0.fill_int_enable.value <= 1'h0;
        end else begin
            if(field_combo.chmu0.cfg0.fill_int_enable.load_next) begin
                field_storage.chmu0.cfg0.fill_int_enable.value <= field_combo.chmu0.cfg0.fill_int_enable.next;
            end
        end
    end
    assign hwif_out.chmu0.cfg0.fill_int_enable.value = field_storage.chmu0.cfg0.fill_int_enable.value;
    // Field: neoprof.chmu0.cfg0.enable
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.cfg0.enable.value;
        load_next_c = '0;
        if(decoded_reg_strb.chmu0.cfg0 && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.chmu0.cfg0.enable.value & ~decoded_wr_biten[16:16]) | (decoded_wr_data[16:16] & decoded_wr_biten[16:16]);
            load_next_c = '1;
        end else if(hwif_in.chmu0.cfg0.enable.hwclr) begin // HW Clear
            next_c = '0;
            load_next_c = '1;
        end
        field_combo.chmu0.cfg0.enable.next = next_c;
        field_combo.chmu0.cfg0.enable.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.cfg0.enable.value <= 1'h0;
        end else begin
            if(field_combo.chmu0.cfg0.enable.load_next) begin
                field_storage.chmu0.cfg0.enable.value <= field_combo.chmu0.cfg0.enable.next;
            end
        end
    end
    assign hwif_out.chmu0.cfg0.enable.value = field_storage.chmu0.cfg0.enable.value;
    // Field: neoprof.chmu0.cfg0.reset
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.cfg0.reset.value;
        load_next_c = '0;
        if(decoded_reg_strb.chmu0.cfg0 && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.chmu0.cfg0.reset.value & ~decoded_wr_biten[17:17]) | (decoded_wr_data[17:17] & decoded_wr_biten[17:17]);
            load_next_c = '1;
        end else begin // singlepulse clears back to 0
            next_c = '0;
            load_next_c = '1;
        end
        field_combo.chmu0.cfg0.reset.next = next_c;
        field_combo.chmu0.cfg0.reset.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.cfg0.reset.value <= 1'h0;
        end else begin
            if(field_combo.chmu0.cfg0.reset.load_next) begin
                field_storage.chmu0.cfg0.reset.value <= field_combo.chmu0.cfg0.reset.next;
            end
        end
    end
    assign hwif_out.chmu0.cfg0.reset.value = field_storage.chmu0.cfg0.reset.value;
    // Field: neoprof.chmu0.cfg0.threshold
    always_comb begin
        automatic logic [31:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.cfg0.threshold.value;
        load_next_c = '0;
        if(decoded_reg_strb.chmu0.cfg0 && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.chmu0.cfg0.threshold.value & ~decoded_wr_biten[63:32]) | (decoded_wr_data[63:32] & decoded_wr_biten[63:32]);
            load_next_c = '1;
        end
        field_combo.chmu0.cfg0.threshold.next = next_c;
        field_combo.chmu0.cfg0.threshold.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.cfg0.threshold.value <= 32'h0;
        end else begin
            if(field_combo.chmu0.cfg0.threshold.load_next) begin
                field_storage.chmu0.cfg0.threshold.value <= field_combo.chmu0.cfg0.threshold.next;
            end
        end
    end
    assign hwif_out.chmu0.cfg0.threshold.value = field_storage.chmu0.cfg0.threshold.value;
    // Field: neoprof.chmu0.cfg1.unit_size
    always_comb begin
        automatic logic [31:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.cfg1.unit_size.value;
        load_next_c = '0;
        if(decoded_reg_strb.chmu0.cfg1 && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.chmu0.cfg1.unit_size.value & ~decoded_wr_biten[31:0]) | (decoded_wr_data[31:0] & decoded_wr_biten[31:0]);
            load_next_c = '1;
        end
        field_combo.chmu0.cfg1.unit_size.next = next_c;
        field_combo.chmu0.cfg1.unit_size.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.cfg1.unit_size.value <= 32'hc;
        end else begin
            if(field_combo.chmu0.cfg1.unit_size.load_next) begin
                field_storage.chmu0.cfg1.unit_size.value <= field_combo.chmu0.cfg1.unit_size.next;
            end
        end
    end
    assign hwif_out.chmu0.cfg1.unit_size.value = field_storage.chmu0.cfg1.unit_size.value;
    // Field: neoprof.chmu0.cfg1.downsampling
    always_comb begin
        automatic logic [7:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.cfg1.downsampling.value;
        load_next_c = '0;
        if(decoded_reg_strb.chmu0.cfg1 && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.chmu0.cfg1.downsampling.value & ~decoded_wr_biten[39:32]) | (decoded_wr_data[39:32] & decoded_wr_biten[39:32]);
            load_next_c = '1;
        end
        field_combo.chmu0.cfg1.downsampling.next = next_c;
        field_combo.chmu0.cfg1.downsampling.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.cfg1.downsampling.value <= 8'h0;
        end else begin
            if(field_combo.chmu0.cfg1.downsampling.load_next) begin
                field_storage.chmu0.cfg1.downsampling.value <= field_combo.chmu0.cfg1.downsampling.next;
            end
        end
    end
    assign hwif_out.chmu0.cfg1.downsampling.value = field_storage.chmu0.cfg1.downsampling.value;
    // Field: neoprof.chmu0.cfg1.mode
    always_comb begin
        automatic logic [7:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.cfg1.mode.value;
        load_next_c = '0;
        if(decoded_reg_strb.chmu0.cfg1 && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.chmu0.cfg1.mode.value & ~decoded_wr_biten[47:40]) | (decoded_wr_data[47:40] & decoded_wr_biten[47:40]);
            load_next_c = '1;
        end
        field_combo.chmu0.cfg1.mode.next = next_c;
        field_combo.chmu0.cfg1.mode.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.cfg1.mode.value <= 8'h0;
        end else begin
            if(field_combo.chmu0.cfg1.mode.load_next) begin
                field_storage.chmu0.cfg1.mode.value <= field_combo.chmu0.cfg1.mode.next;
            end
        end
    end
    assign hwif_out.chmu0.cfg1.mode.value = field_storage.chmu0.cfg1.mode.value;
    // Field: neoprof.chmu0.cfg1.epoch_scale
    always_comb begin
        automatic logic [3:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.cfg1.epoch_scale.value;
        load_next_c = '0;
        if(decoded_reg_strb.chmu0.cfg1 && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.chmu0.cfg1.epoch_scale.value & ~decoded_wr_biten[51:48]) | (decoded_wr_data[51:48] & decoded_wr_biten[51:48]);
            load_next_c = '1;
        end
        field_combo.chmu0.cfg1.epoch_scale.next = next_c;
        field_combo.chmu0.cfg1.epoch_scale.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.cfg1.epoch_scale.value <= 4'h1;
        end else begin
            if(field_combo.chmu0.cfg1.epoch_scale.load_next) begin
                field_storage.chmu0.cfg1.epoch_scale.value <= field_combo.chmu0.cfg1.epoch_scale.next;
            end
        end
    end
    assign hwif_out.chmu0.cfg1.epoch_scale.value = field_storage.chmu0.cfg1.epoch_scale.value;
    // Field: neoprof.chmu0.cfg1.epoch_multiplier
    always_comb begin
        automatic logic [11:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.cfg1.epoch_multiplier.value;
        load_next_c = '0;
        if(decoded_reg_strb.chmu0.cfg1 && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.chmu0.cfg1.epoch_multiplier.value & ~decoded_wr_biten[63:52]) | (decoded_wr_data[63:52] & decoded_wr_biten[63:52]);
            load_next_c = '1;
        end
        field_combo.chmu0.cfg1.epoch_multiplier.next = next_c;
        field_combo.chmu0.cfg1.epoch_multiplier.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.cfg1.epoch_multiplier.value <= 12'h1;
        end else begin
            if(field_combo.chmu0.cfg1.epoch_multiplier.load_next) begin
                field_storage.chmu0.cfg1.epoch_multiplier.value <= field_combo.chmu0.cfg1.epoch_multiplier.next;
            end
        end
    end
    assign hwif_out.chmu0.cfg1.epoch_multiplier.value = field_storage.chmu0.cfg1.epoch_multiplier.value;
    // Field: neoprof.chmu0.cfg2.fill_threshold
    always_comb begin
        automatic logic [15:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.cfg2.fill_threshold.value;
        load_next_c = '0;
        if(decoded_reg_strb.chmu0.cfg2 && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.chmu0.cfg2.fill_threshold.value & ~decoded_wr_biten[15:0]) | (decoded_wr_data[15:0] & decoded_wr_biten[15:0]);
            load_next_c = '1;
        end
        field_combo.chmu0.cfg2.fill_threshold.next = next_c;
        field_combo.chmu0.cfg2.fill_threshold.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.cfg2.fill_threshold.value <= 16'h0;
        end else begin
            if(field_combo.chmu0.cfg2.fill_threshold.load_next) begin
                field_storage.chmu0.cfg2.fill_threshold.value <= field_combo.chmu0.cfg2.fill_threshold.next;
            end
        end
    end
    assign hwif_out.chmu0.cfg2.fill_threshold.value = field_storage.chmu0.cfg2.fill_threshold.value;
    // Field: neoprof.chmu0.status.overflow
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.status.overflow.value;
        load_next_c = '0;
        if(hwif_in.chmu0.status.overflow.hwset) begin // HW Set
            next_c = '1;
            load_next_c = '1;
        end else if(hwif_in.chmu0.status.overflow.hwclr) begin // HW Clear
            next_c = '0;
            load_next_c = '1;
        end else if(decoded_reg_strb.chmu0.status && decoded_req_is_wr) begin // SW write 1 clear
            next_c = field_storage.chmu0.status.overflow.value & ~(decoded_wr_data[40:40] & decoded_wr_biten[40:40]);
            load_next_c = '1;
        end
        field_combo.chmu0.status.overflow.next = next_c;
        field_combo.chmu0.status.overflow.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.status.overflow.value <= 1'h0;
        end else begin
            if(field_combo.chmu0.status.overflow.load_next) begin
                field_storage.chmu0.status.overflow.value <= field_combo.chmu0.status.overflow.next;
            end
        end
    end
    assign hwif_out.chmu0.status.overflow.value = field_storage.chmu0.status.overflow.value;
    // Field: neoprof.chmu0.status.fill
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.status.fill.value;
        load_next_c = '0;
        if(hwif_in.chmu0.status.fill.hwset) begin // HW Set
            next_c = '1;
            load_next_c = '1;
        end else if(hwif_in.chmu0.status.fill.hwclr) begin // HW Clear
            next_c = '0;
            load_next_c = '1;
        end else if(decoded_reg_strb.chmu0.status && decoded_req_is_wr) begin // SW write 1 clear
            next_c = field_storage.chmu0.status.fill.value & ~(decoded_wr_data[41:41] & decoded_wr_biten[41:41]);
            load_next_c = '1;
        end
        field_combo.chmu0.status.fill.next = next_c;
        field_combo.chmu0.status.fill.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.status.fill.value <= 1'h0;
        end else begin
            if(field_combo.chmu0.status.fill.load_next) begin
                field_storage.chmu0.status.fill.value <= field_combo.chmu0.status.fill.next;
            end
        end
    end
    assign hwif_out.chmu0.status.fill.value = field_storage.chmu0.status.fill.value;
    // Field: neoprof.chmu0.hotlist.head
    always_comb begin
        automatic logic [15:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.chmu0.hotlist.head.value;
        load_next_c = '0;
        if(decoded_reg_strb.chmu0.hotlist && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.chmu0.hotlist.head.value & ~decoded_wr_biten[15:0]) | (decoded_wr_data[15:0] & decoded_wr_biten[15:0]);
            load_next_c = '1;
        end else if(hwif_in.chmu0.hotlist.head.we) begin // HW Write - we
            next_c = hwif_in.chmu0.hotlist.head.next;
            load_next_c = '1;
        end
        field_combo.chmu0.hotlist.head.next = next_c;
        field_combo.chmu0.hotlist.head.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.chmu0.hotlist.head.value <= 16'h0;
        end else begin
            if(field_combo.chmu0.hotlist.head.load_next) begin
                field_storage.chmu0.hotlist.head.value <= field_combo.chmu0.hotlist.head.next;
            end
        end
    end
    assign hwif_out.chmu0.hotlist.head.value = field_storage.chmu0.hotlist.head.value;
    assign hwif_out.chmu0.hotlist.head.swmod = decoded_reg_strb.chmu0.hotlist && decoded_req_is_wr && |(decoded_wr_biten[15:0]);
    // Field: neoprof.vendor.config.conservative
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.config_.conservative.value;
        load_next_c = '0;
        if(decoded_reg_strb.vendor.config_ && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.vendor.config_.conservative.value & ~decoded_wr_biten[0:0]) | (decoded_wr_data[0:0] & decoded_wr_biten[0:0]);
            load_next_c = '1;
        end
        field_combo.vendor.config_.conservative.next = next_c;
        field_combo.vendor.config_.conservative.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.config_.conservative.value <= 1'h0;
        end else begin
            if(field_combo.vendor.config_.conservative.load_next) begin
                field_storage.vendor.config_.conservative.value <= field_combo.vendor.config_.conservative.next;
            end
        end
    end
    assign hwif_out.vendor.config_.conservative.value = field_storage.vendor.config_.conservative.value;
    // Field: neoprof.vendor.config.coalesce
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.config_.coalesce.value;
        load_next_c = '0;
        if(decoded_reg_strb.vendor.config_ && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.vendor.config_.coalesce.value & ~decoded_wr_biten[1:1]) | (decoded_wr_data[1:1] & decoded_wr_biten[1:1]);
            load_next_c = '1;
        end
        field_combo.vendor.config_.coalesce.next = next_c;
        field_combo.vendor.config_.coalesce.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.config_.coalesce.value <= 1'h0;
        end else begin
            if(field_combo.vendor.config_.coalesce.load_next) begin
                field_storage.vendor.config_.coalesce.value <= field_combo.vendor.config_.coalesce.next;
            end
        end
    end
    assign hwif_out.vendor.config_.coalesce.value = field_storage.vendor.config_.coalesce.value;
    // Field: neoprof.vendor.config.by_parts
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.config_.by_parts.value;
        load_next_c = '0;
        if(decoded_reg_strb.vendor.config_ && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.vendor.config_.by_parts.value & ~decoded_wr_biten[2:2]) | (decoded_wr_data[2:2] & decoded_wr_biten[2:2]);
            load_next_c = '1;
        end
        field_combo.vendor.config_.by_parts.next = next_c;
        field_combo.vendor.config_.by_parts.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.config_.by_parts.value <= 1'h0;
        end else begin
            if(field_combo.vendor.config_.by_parts.load_next) begin
                field_storage.vendor.config_.by_parts.value <= field_combo.vendor.config_.by_parts.next;
            end
        end
    end
    assign hwif_out.vendor.config_.by_parts.value = field_storage.vendor.config_.by_parts.value;
    // Field: neoprof.vendor.config.run_window
    always_comb begin
        automatic logic [15:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.config_.run_window.value;
        load_next_c = '0;
        if(decoded_reg_strb.vendor.config_ && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.vendor.config_.run_window.value & ~decoded_wr_biten[31:16]) | (decoded_wr_data[31:16] & decoded_wr_biten[31:16]);
            load_next_c = '1;
        end
        field_combo.vendor.config_.run_window.next = next_c;
        field_combo.vendor.config_.run_window.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.config_.run_window.value <= 16'h0;
        end else begin
            if(field_combo.vendor.config_.run_window.load_next) begin
                field_storage.vendor.config_.run_window.value <= field_combo.vendor.config_.run_window.next;
            end
        end
    end
    assign hwif_out.vendor.config_.run_window.value = field_storage.vendor.config_.run_window.value;
    // Field: neoprof.vendor.config.use_window
    always_comb begin
        automatic logic [15:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.config_.use_window.value;
        load_next_c = '0;
        if(decoded_reg_strb.vendor.config_ && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.vendor.config_.use_window.value & ~decoded_wr_biten[47:32]) | (decoded_wr_data[47:32] & decoded_wr_biten[47:32]);
            load_next_c = '1;
        end
        field_combo.vendor.config_.use_window.next = next_c;
        field_combo.vendor.config_.use_window.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.config_.use_window.value <= 16'h0;
        end else begin
            if(field_combo.vendor.config_.use_window.load_next) begin
                field_storage.vendor.config_.use_window.value <= field_combo.vendor.config_.use_window.next;
            end
        end
    end
    assign hwif_out.vendor.config_.use_window.value = field_storage.vendor.config_.use_window.value;
    // Field: neoprof.vendor.command.clear
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.command.clear.value;
        load_next_c = '0;
        if(decoded_reg_strb.vendor.command && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.vendor.command.clear.value & ~decoded_wr_biten[0:0]) | (decoded_wr_data[0:0] & decoded_wr_biten[0:0]);
            load_next_c = '1;
        end else begin // singlepulse clears back to 0
            next_c = '0;
            load_next_c = '1;
        end
        field_combo.vendor.command.clear.next = next_c;
        field_combo.vendor.command.clear.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.command.clear.value <= 1'h0;
        end else begin
            if(field_combo.vendor.command.clear.load_next) begin
                field_storage.vendor.command.clear.value <= field_combo.vendor.command.clear.next;
            end
        end
    end
    assign hwif_out.vendor.command.clear.value = field_storage.vendor.command.clear.value;
    // Field: neoprof.vendor.command.snapshot
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.command.snapshot.value;
        load_next_c = '0;
        if(decoded_reg_strb.vendor.command && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.vendor.command.snapshot.value & ~decoded_wr_biten[1:1]) | (decoded_wr_data[1:1] & decoded_wr_biten[1:1]);
            load_next_c = '1;
        end else begin // singlepulse clears back to 0
            next_c = '0;
            load_next_c = '1;
        end
        field_combo.vendor.command.snapshot.next = next_c;
        field_combo.vendor.command.snapshot.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.command.snapshot.value <= 1'h0;
        end else begin
            if(field_combo.vendor.command.snapshot.load_next) begin
                field_storage.vendor.command.snapshot.value <= field_combo.vendor.command.snapshot.next;
            end
        end
    end
    assign hwif_out.vendor.command.snapshot.value = field_storage.vendor.command.snapshot.value;
    // Field: neoprof.vendor.config_error.what
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.config_error.what.value;
        load_next_c = '0;
        if(hwif_in.vendor.config_error.what.hwset) begin // HW Set
            next_c = '1;
            load_next_c = '1;
        end else if(decoded_reg_strb.vendor.config_error && decoded_req_is_wr) begin // SW write 1 clear
            next_c = field_storage.vendor.config_error.what.value & ~(decoded_wr_data[0:0] & decoded_wr_biten[0:0]);
            load_next_c = '1;
        end
        field_combo.vendor.config_error.what.next = next_c;
        field_combo.vendor.config_error.what.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.config_error.what.value <= 1'h0;
        end else begin
            if(field_combo.vendor.config_error.what.load_next) begin
                field_storage.vendor.config_error.what.value <= field_combo.vendor.config_error.what.next;
            end
        end
    end
    // Field: neoprof.vendor.config_error.unit_size
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.config_error.unit_size.value;
        load_next_c = '0;
        if(hwif_in.vendor.config_error.unit_size.hwset) begin // HW Set
            next_c = '1;
            load_next_c = '1;
        end else if(decoded_reg_strb.vendor.config_error && decoded_req_is_wr) begin // SW write 1 clear
            next_c = field_storage.vendor.config_error.unit_size.value & ~(decoded_wr_data[1:1] & decoded_wr_biten[1:1]);
            load_next_c = '1;
        end
        field_combo.vendor.config_error.unit_size.next = next_c;
        field_combo.vendor.config_error.unit_size.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.config_error.unit_size.value <= 1'h0;
        end else begin
            if(field_combo.vendor.config_error.unit_size.load_next) begin
                field_storage.vendor.config_error.unit_size.value <= field_combo.vendor.config_error.unit_size.next;
            end
        end
    end
    // Field: neoprof.vendor.config_error.downsampling
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.config_error.downsampling.value;
        load_next_c = '0;
        if(hwif_in.vendor.config_error.downsampling.hwset) begin // HW Set
            next_c = '1;
            load_next_c = '1;
        end else if(decoded_reg_strb.vendor.config_error && decoded_req_is_wr) begin // SW write 1 clear
            next_c = field_storage.vendor.config_error.downsampling.value & ~(decoded_wr_data[2:2] & decoded_wr_biten[2:2]);
            load_next_c = '1;
        end
        field_combo.vendor.config_error.downsampling.next = next_c;
        field_combo.vendor.config_error.downsampling.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.config_error.downsampling.value <= 1'h0;
        end else begin
            if(field_combo.vendor.config_error.downsampling.load_next) begin
                field_storage.vendor.config_error.downsampling.value <= field_combo.vendor.config_error.downsampling.next;
            end
        end
    end
    // Field: neoprof.vendor.config_error.mode
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.config_error.mode.value;
        load_next_c = '0;
        if(hwif_in.vendor.config_error.mode.hwset) begin // HW Set
            next_c = '1;
            load_next_c = '1;
        end else if(decoded_reg_strb.vendor.config_error && decoded_req_is_wr) begin // SW write 1 clear
            next_c = field_storage.vendor.config_error.mode.value & ~(decoded_wr_data[3:3] & decoded_wr_biten[3:3]);
            load_next_c = '1;
        end
        field_combo.vendor.config_error.mode.next = next_c;
        field_combo.vendor.config_error.mode.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.config_error.mode.value <= 1'h0;
        end else begin
            if(field_combo.vendor.config_error.mode.load_next) begin
                field_storage.vendor.config_error.mode.value <= field_combo.vendor.config_error.mode.next;
            end
        end
    end
    // Field: neoprof.vendor.config_error.epoch
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.config_error.epoch.value;
        load_next_c = '0;
        if(hwif_in.vendor.config_error.epoch.hwset) begin // HW Set
            next_c = '1;
            load_next_c = '1;
        end else if(decoded_reg_strb.vendor.config_error && decoded_req_is_wr) begin // SW write 1 clear
            next_c = field_storage.vendor.config_error.epoch.value & ~(decoded_wr_data[4:4] & decoded_wr_biten[4:4]);
            load_next_c = '1;
        end
        field_combo.vendor.config_error.epoch.next = next_c;
        field_combo.vendor.config_error.epoch.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.config_error.epoch.value <= 1'h0;
        end else begin
            if(field_combo.vendor.config_error.epoch.load_next) begin
                field_storage.vendor.config_error.epoch.value <= field_combo.vendor.config_error.epoch.next;
            end
        end
    end
    // Field: neoprof.vendor.config_error.threshold
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.config_error.threshold.value;
        load_next_c = '0;
        if(hwif_in.vendor.config_error.threshold.hwset) begin // HW Set
            next_c = '1;
            load_next_c = '1;
        end else if(decoded_reg_strb.vendor.config_error && decoded_req_is_wr) begin // SW write 1 clear
            next_c = field_storage.vendor.config_error.threshold.value & ~(decoded_wr_data[5:5] & decoded_wr_biten[5:5]);
            load_next_c = '1;
        end
        field_combo.vendor.config_error.threshold.next = next_c;
        field_combo.vendor.config_error.threshold.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.config_error.threshold.value <= 1'h0;
        end else begin
            if(field_combo.vendor.config_error.threshold.load_next) begin
                field_storage.vendor.config_error.threshold.value <= field_combo.vendor.config_error.threshold.next;
            end
        end
    end
    // Field: neoprof.vendor.config_error.head
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.config_error.head.value;
        load_next_c = '0;
        if(hwif_in.vendor.config_error.head.hwset) begin // HW Set
            next_c = '1;
            load_next_c = '1;
        end else if(decoded_reg_strb.vendor.config_error && decoded_req_is_wr) begin // SW write 1 clear
            next_c = field_storage.vendor.config_error.head.value & ~(decoded_wr_data[6:6] & decoded_wr_biten[6:6]);
            load_next_c = '1;
        end
        field_combo.vendor.config_error.head.next = next_c;
        field_combo.vendor.config_error.head.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.config_error.head.value <= 1'h0;
        end else begin
            if(field_combo.vendor.config_error.head.load_next) begin
                field_storage.vendor.config_error.head.value <= field_combo.vendor.config_error.head.next;
            end
        end
    end
    // Field: neoprof.vendor.config_error.error_rank
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.config_error.error_rank.value;
        load_next_c = '0;
        if(hwif_in.vendor.config_error.error_rank.hwset) begin // HW Set
            next_c = '1;
            load_next_c = '1;
        end else if(decoded_reg_strb.vendor.config_error && decoded_req_is_wr) begin // SW write 1 clear
            next_c = field_storage.vendor.config_error.error_rank.value & ~(decoded_wr_data[7:7] & decoded_wr_biten[7:7]);
            load_next_c = '1;
        end
        field_combo.vendor.config_error.error_rank.next = next_c;
        field_combo.vendor.config_error.error_rank.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.config_error.error_rank.value <= 1'h0;
        end else begin
            if(field_combo.vendor.config_error.error_rank.load_next) begin
                field_storage.vendor.config_error.error_rank.value <= field_combo.vendor.config_error.error_rank.next;
            end
        end
    end
    // Field: neoprof.vendor.config_error.range_locked
    always_comb begin
        automatic logic [0:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.config_error.range_locked.value;
        load_next_c = '0;
        if(hwif_in.vendor.config_error.range_locked.hwset) begin // HW Set
            next_c = '1;
            load_next_c = '1;
        end else if(decoded_reg_strb.vendor.config_error && decoded_req_is_wr) begin // SW write 1 clear
            next_c = field_storage.vendor.config_error.range_locked.value & ~(decoded_wr_data[8:8] & decoded_wr_biten[8:8]);
            load_next_c = '1;
        end
        field_combo.vendor.config_error.range_locked.next = next_c;
        field_combo.vendor.config_error.range_locked.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.config_error.range_locked.value <= 1'h0;
        end else begin
            if(field_combo.vendor.config_error.range_locked.load_next) begin
                field_storage.vendor.config_error.range_locked.value <= field_combo.vendor.config_error.range_locked.next;
            end
        end
    end
    // Field: neoprof.vendor.error_rank.rank
    always_comb begin
        automatic logic [31:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.error_rank.rank.value;
        load_next_c = '0;
        if(decoded_reg_strb.vendor.error_rank && decoded_req_is_wr) begin // SW write
            next_c = (field_storage.vendor.error_rank.rank.value & ~decoded_wr_biten[31:0]) | (decoded_wr_data[31:0] & decoded_wr_biten[31:0]);
            load_next_c = '1;
        end else if(hwif_in.vendor.error_rank.rank.we) begin // HW Write - we
            next_c = hwif_in.vendor.error_rank.rank.next;
            load_next_c = '1;
        end
        field_combo.vendor.error_rank.rank.next = next_c;
        field_combo.vendor.error_rank.rank.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.error_rank.rank.value <= 32'h0;
        end else begin
            if(field_combo.vendor.error_rank.rank.load_next) begin
                field_storage.vendor.error_rank.rank.value <= field_combo.vendor.error_rank.rank.next;
            end
        end
    end
    assign hwif_out.vendor.error_rank.rank.value = field_storage.vendor.error_rank.rank.value;
    // Field: neoprof.vendor.bus_errors.count
    always_comb begin
        automatic logic [31:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.vendor.bus_errors.count.value;
        load_next_c = '0;
        if(decoded_reg_strb.vendor.bus_errors && decoded_req_is_wr) begin // SW write 0 clear
            next_c = field_storage.vendor.bus_errors.count.value & (decoded_wr_data[31:0] | ~decoded_wr_biten[31:0]);
            load_next_c = '1;
        end
        if(hwif_in.vendor.bus_errors.count.incr) begin // increment
            if(((33)'(next_c) + hwif_in.vendor.bus_errors.count.incrvalue) > 32'hffffffff) begin // up-counter saturated
                next_c = 32'hffffffff;
            end else begin
                next_c = next_c + hwif_in.vendor.bus_errors.count.incrvalue;
            end
            load_next_c = '1;
        end
        field_combo.vendor.bus_errors.count.incrthreshold = (field_storage.vendor.bus_errors.count.value >= 32'hffffffff);
        field_combo.vendor.bus_errors.count.incrsaturate = (field_storage.vendor.bus_errors.count.value >= 32'hffffffff);
        field_combo.vendor.bus_errors.count.next = next_c;
        field_combo.vendor.bus_errors.count.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.vendor.bus_errors.count.value <= 32'h0;
        end else begin
            if(field_combo.vendor.bus_errors.count.load_next) begin
                field_storage.vendor.bus_errors.count.value <= field_combo.vendor.bus_errors.count.next;
            end
        end
    end
    // External region: neoprof.snapshot
    assign hwif_out.snapshot.req = decoded_reg_strb.snapshot;
    assign hwif_out.snapshot.addr = decoded_addr[7:0];
    assign hwif_out.snapshot.req_is_wr = decoded_req_is_wr;
    assign hwif_out.snapshot.wr_data = decoded_wr_data;
    assign hwif_out.snapshot.wr_biten = decoded_wr_biten;
    // External region: neoprof.histogram
    assign hwif_out.histogram.req = decoded_reg_strb.histogram;
    assign hwif_out.histogram.addr = decoded_addr[8:0];
    assign hwif_out.histogram.req_is_wr = decoded_req_is_wr;
    assign hwif_out.histogram.wr_data = decoded_wr_data;
    assign hwif_out.histogram.wr_biten = decoded_wr_biten;
    // External region: neoprof.range_bitmap
    assign hwif_out.range_bitmap.req = decoded_reg_strb.range_bitmap;
    assign hwif_out.range_bitmap.addr = decoded_addr[8:0];
    assign hwif_out.range_bitmap.req_is_wr = decoded_req_is_wr;
    assign hwif_out.range_bitmap.wr_data = decoded_wr_data;
    assign hwif_out.range_bitmap.wr_biten = decoded_wr_biten;
    // Field: neoprof.range_guard.nothing
    always_comb begin
        automatic logic [63:0] next_c;
        automatic logic load_next_c;
        next_c = field_storage.range_guard.nothing.value;
        load_next_c = '0;
        if(decoded_reg_strb.range_guard && decoded_req_is_wr) begin // SW write clear
            next_c = '0;
            load_next_c = '1;
        end
        field_combo.range_guard.nothing.next = next_c;
        field_combo.range_guard.nothing.load_next = load_next_c;
    end
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            field_storage.range_guard.nothing.value <= 64'h0;
        end else begin
            if(field_combo.range_guard.nothing.load_next) begin
                field_storage.range_guard.nothing.value <= field_combo.range_guard.nothing.next;
            end
        end
    end
    // External region: neoprof.hotlist
    assign hwif_out.hotlist.req = decoded_reg_strb.hotlist;
    assign hwif_out.hotlist.addr = decoded_addr[14:0];
    assign hwif_out.hotlist.req_is_wr = decoded_req_is_wr;
    assign hwif_out.hotlist.wr_data = decoded_wr_data;
    assign hwif_out.hotlist.wr_biten = decoded_wr_biten;

    //--------------------------------------------------------------------------
    // Write response
    //--------------------------------------------------------------------------
    always_comb begin
        automatic logic wr_ack;
        wr_ack = '0;
        wr_ack |= hwif_in.snapshot.wr_ack;
        wr_ack |= hwif_in.histogram.wr_ack;
        wr_ack |= hwif_in.range_bitmap.wr_ack;
        wr_ack |= hwif_in.hotlist.wr_ack;
        external_wr_ack = wr_ack;
    end
    assign cpuif_wr_ack = external_wr_ack | (decoded_req & decoded_req_is_wr & ~decoded_req_is_external);
    // Writes are always granted with no error response
    assign cpuif_wr_err = decoded_err;

    //--------------------------------------------------------------------------
    // Readback
    //--------------------------------------------------------------------------
    logic readback_external_rd_ack_c;
    always_comb begin
        automatic logic rd_ack;
        rd_ack = '0;
        rd_ack |= hwif_in.snapshot.rd_ack;
        rd_ack |= hwif_in.histogram.rd_ack;
        rd_ack |= hwif_in.range_bitmap.rd_ack;
        rd_ack |= hwif_in.hotlist.rd_ack;
        readback_external_rd_ack_c = rd_ack;
    end

    logic readback_external_rd_ack;

    assign readback_external_rd_ack = readback_external_rd_ack_c;

    logic [15:0] rd_mux_addr;
    logic [15:0] pending_rd_addr;
    // Hold read mux address to guarantee it is stable throughout any external accesses
    always_ff @(posedge clk or negedge arst_n) begin
        if(~arst_n) begin
            pending_rd_addr <= '0;
        end else begin
            if(decoded_req) pending_rd_addr <= decoded_addr;
        end
    end
    assign rd_mux_addr = decoded_req ? decoded_addr : pending_rd_addr;

    logic readback_err;
    logic readback_done;
    logic [63:0] readback_data;
    always_comb begin
        automatic logic [63:0] readback_data_var;
        readback_data_var = '0;
        if(rd_mux_addr == 16'h0) begin
            readback_data_var[3:0] = 4'h1;
            readback_data_var[15:8] = 8'h1;
        end
        if(rd_mux_addr == 16'h8) begin
            readback_data_var[15:0] = 16'hfff0;
        end
        if(rd_mux_addr == 16'h10) begin
            readback_data_var[3:0] = 4'h0;
            readback_data_var[4] = 1'h1;
            readback_data_var[5] = 1'h1;
            readback_data_var[7:6] = 2'h0;
            readback_data_var[13:8] = 6'h3f;
            readback_data_var[19:16] = 4'h5;
            readback_data_var[31:20] = 12'hfff;
            readback_data_var[35:32] = 4'h1;
            readback_data_var[47:36] = 12'h1;
            readback_data_var[63:48] = hwif_in.chmu0.cap0.hotlist_size.next;
        end
        if(rd_mux_addr == 16'h18) begin
            readback_data_var[31:0] = 32'h3ff0;
            readback_data_var[47:32] = 16'hffff;
            readback_data_var[48] = 1'h1;
            readback_data_var[49] = 1'h1;
            readback_data_var[50] = 1'h1;
            readback_data_var[51] = 1'h0;
            readback_data_var[52] = 1'h0;
        end
        if(rd_mux_addr == 16'h20) begin
            readback_data_var[63:0] = 64'h1ff0;
        end
        if(rd_mux_addr == 16'h28) begin
            readback_data_var[63:0] = 64'h7ff0;
        end
        if(rd_mux_addr == 16'h50) begin
            readback_data_var[7:0] = field_storage.chmu0.cfg0.what.value;
            readback_data_var[8] = field_storage.chmu0.cfg0.random_downsampling.value;
            readback_data_var[9] = field_storage.chmu0.cfg0.overflow_int_enable.value;
            readback_data_var[10] = field_storage.chmu0.cfg0.fill_int_enable.value;
            readback_data_var[16] = field_storage.chmu0.cfg0.enable.value;
            readback_data_var[17] = field_storage.chmu0.cfg0.reset.value;
            readback_data_var[63:32] = field_storage.chmu0.cfg0.threshold.value;
        end
        if(rd_mux_addr == 16'h58) begin
            readback_data_var[31:0] = field_storage.chmu0.cfg1.unit_size.value;
            readback_data_var[39:32] = field_storage.chmu0.cfg1.downsampling.value;
            readback_data_var[47:40] = field_storage.chmu0.cfg1.mode.value;
            readback_data_var[51:48] = field_storage.chmu0.cfg1.epoch_scale.value;
            readback_data_var[63:52] = field_storage.chmu0.cfg1.epoch_multiplier.value;
        end
        if(rd_mux_addr == 16'h60) begin
            readback_data_var[15:0] = field_storage.chmu0.cfg2.fill_threshold.value;
        end
        if(rd_mux_addr == 16'h70) begin
            readback_data_var[0] = hwif_in.chmu0.status.enabled.next;
            readback_data_var[31:16] = hwif_in.chmu0.status.operation.next;
            readback_data_var[39:32] = 8'h10;
            readback_data_var[40] = field_storage.chmu0.status.overflow.value;
            readback_data_var[41] = field_storage.chmu0.status.fill.value;
        end
        if(rd_mux_addr == 16'h78) begin
            readback_data_var[15:0] = field_storage.chmu0.hotlist.head.value;
            readback_data_var[31:16] = hwif_in.chmu0.hotlist.tail.next;
        end
        if(rd_mux_addr == 16'h1000) begin
            readback_data_var[31:0] = 32'h4e50524f;
            readback_data_var[39:32] = 8'h0;
            readback_data_var[47:40] = 8'h2;
        end
        if(rd_mux_addr == 16'h1008) begin
            readback_data_var[7:0] = hwif_in.vendor.geometry.depth.next;
            readback_data_var[15:8] = hwif_in.vendor.geometry.log2_width.next;
            readback_data_var[23:16] = hwif_in.vendor.geometry.counter_width.next;
            readback_data_var[31:24] = hwif_in.vendor.geometry.channels.next;
            readback_data_var[39:32] = hwif_in.vendor.geometry.histogram_bins.next;
            readback_data_var[47:40] = hwif_in.vendor.geometry.epoch_width.next;
            readback_data_var[55:48] = hwif_in.vendor.geometry.log2_capacity.next;
            readback_data_var[63:56] = hwif_in.vendor.geometry.log2_runs.next;
        end
        if(rd_mux_addr == 16'h1010) begin
            readback_data_var[31:0] = hwif_in.vendor.timebase.cycles_per_100us.next;
        end
        if(rd_mux_addr == 16'h1018) begin
            readback_data_var[0] = field_storage.vendor.config_.conservative.value;
            readback_data_var[1] = field_storage.vendor.config_.coalesce.value;
            readback_data_var[2] = field_storage.vendor.config_.by_parts.value;
            readback_data_var[31:16] = field_storage.vendor.config_.run_window.value;
            readback_data_var[47:32] = field_storage.vendor.config_.use_window.value;
        end
        if(rd_mux_addr == 16'h1020) begin
            readback_data_var[0] = field_storage.vendor.command.clear.value;
            readback_data_var[1] = field_storage.vendor.command.snapshot.value;
        end
        if(rd_mux_addr == 16'h1028) begin
            readback_data_var[0] = hwif_in.vendor.status.initialising.next;
            readback_data_var[1] = hwif_in.vendor.status.clear_pending.next;
            readback_data_var[2] = hwif_in.vendor.status.snapshot_pending.next;
            readback_data_var[3] = hwif_in.vendor.status.head_pending.next;
            readback_data_var[4] = hwif_in.vendor.status.threshold_pending.next;
        end
        if(rd_mux_addr == 16'h1030) begin
            readback_data_var[0] = field_storage.vendor.config_error.what.value;
            readback_data_var[1] = field_storage.vendor.config_error.unit_size.value;
            readback_data_var[2] = field_storage.vendor.config_error.downsampling.value;
            readback_data_var[3] = field_storage.vendor.config_error.mode.value;
            readback_data_var[4] = field_storage.vendor.config_error.epoch.value;
            readback_data_var[5] = field_storage.vendor.config_error.threshold.value;
            readback_data_var[6] = field_storage.vendor.config_error.head.value;
            readback_data_var[7] = field_storage.vendor.config_error.error_rank.value;
            readback_data_var[8] = field_storage.vendor.config_error.range_locked.value;
        end
        if(rd_mux_addr == 16'h1038) begin
            readback_data_var[31:0] = field_storage.vendor.error_rank.rank.value;
        end
        if(rd_mux_addr == 16'h1040) begin
            readback_data_var[15:0] = hwif_in.vendor.error_bound.low.next;
            readback_data_var[31:16] = hwif_in.vendor.error_bound.high.next;
            readback_data_var[37:32] = hwif_in.vendor.error_bound.bin.next;
            readback_data_var[63] = hwif_in.vendor.error_bound.valid.next;
        end
        if(rd_mux_addr == 16'h1048) begin
            readback_data_var[31:0] = field_storage.vendor.bus_errors.count.value;
        end
        if(rd_mux_addr == 16'h1050) begin
            readback_data_var[15:0] = hwif_in.vendor.threshold_in_force.threshold.next;
        end
        if(rd_mux_addr == 16'h1058) begin
            readback_data_var[7:0] = hwif_in.vendor.tracker.kind.next;
            readback_data_var[15:8] = hwif_in.vendor.tracker.ways.next;
            readback_data_var[23:16] = hwif_in.vendor.tracker.parts.next;
        end
        if((rd_mux_addr >= 16'h1100) && (rd_mux_addr <= 16'h1100 + 16'h8f)) begin
            readback_data_var = hwif_in.snapshot.rd_data;
        end
        if((rd_mux_addr >= 16'h1200) && (rd_mux_addr <= 16'h1200 + 16'h1ff)) begin
            readback_data_var = hwif_in.histogram.rd_data;
        end
        if((rd_mux_addr >= 16'h2000) && (rd_mux_addr <= 16'h2000 + 16'h1ff)) begin
            readback_data_var = hwif_in.range_bitmap.rd_data;
        end
        if(rd_mux_addr == 16'h2200) begin
            readback_data_var[63:0] = field_storage.range_guard.nothing.value;
        end
        if((rd_mux_addr >= 16'h8000) && (rd_mux_addr <= 16'h8000 + 16'h7fff)) begin
            readback_data_var = hwif_in.hotlist.rd_data;
        end
        readback_data = readback_data_var;
        readback_done = decoded_req & ~decoded_req_is_wr & ~decoded_req_is_external;
        readback_err = decoded_err;
    end

    assign external_rd_ack = readback_external_rd_ack;
    assign cpuif_rd_ack = readback_done | readback_external_rd_ack;
    assign cpuif_rd_data = readback_data;
    assign cpuif_rd_err = readback_err;
endmodule
