// Two cards that sum a tensor, in plain Verilog and by their registers alone; prints PASS.
//
//   gradnic verilog --preset jobs128 --out build/jobs128
//   iverilog -g2012 -I build/jobs128 -o bench.vvp \
//     examples/bench_of_a_card.v build/jobs128/jobs128.v
//   vvp -n bench.vvp
//
// or `verilator --binary -j 0 -Ibuild/jobs128 --top-module bench`, and both files.
//
// Rows are those of ring.h, as this card reads them:
//
//   gradnic schedule --topology ring:2 --algorithm ring --row-nodes 64 --row-chunks 64 \
//     --table ring.h
//
// Registers and entries: build/jobs128/jobs128_registers.md. Descriptors: docs/reference/jobs.md.
`timescale 1ns / 1ps

// An AXI4 memory of 16-byte beats, one burst at a time, behind a port of the card.
`define READ_PORT(P) \
  reg P``_busy = 0; reg [31:0] P``_at; reg [7:0] P``_left; \
  assign m_axi_``P``_arready = !P``_busy; \
  assign m_axi_``P``_rid = 0; \
  assign m_axi_``P``_rdata = memory[P``_at[19:4]]; \
  assign m_axi_``P``_rresp = 0; \
  assign m_axi_``P``_rlast = P``_left == 0; \
  assign m_axi_``P``_rvalid = P``_busy; \
  always @(posedge clock) \
    if (reset) P``_busy <= 0; \
    else if (!P``_busy) begin \
      P``_busy <= m_axi_``P``_arvalid; \
      P``_at <= m_axi_``P``_araddr; \
      P``_left <= m_axi_``P``_arlen; \
    end else if (m_axi_``P``_rready) begin \
      P``_at <= P``_at + 16; \
      P``_left <= P``_left - 1; \
      P``_busy <= P``_left != 0; \
    end
`define WRITE_PORT(P) \
  reg P``_busy = 0, P``_written = 0; reg [31:0] P``_at; integer P``_k; \
  assign m_axi_``P``_awready = !P``_busy && !P``_written; \
  assign m_axi_``P``_wready = P``_busy; \
  assign m_axi_``P``_bid = 0; \
  assign m_axi_``P``_bresp = 0; \
  assign m_axi_``P``_bvalid = P``_written; \
  always @(posedge clock) \
    if (reset) begin P``_busy <= 0; P``_written <= 0; end \
    else begin \
      if (m_axi_``P``_awvalid && m_axi_``P``_awready) begin \
        P``_busy <= 1; \
        P``_at <= m_axi_``P``_awaddr; \
      end \
      if (P``_busy && m_axi_``P``_wvalid) begin \
        for (P``_k = 0; P``_k < 16; P``_k = P``_k + 1) \
          if (m_axi_``P``_wstrb[P``_k]) \
            memory[P``_at[19:4]][8 * P``_k +: 8] = m_axi_``P``_wdata[8 * P``_k +: 8]; \
        P``_at <= P``_at + 16; \
        if (m_axi_``P``_wlast) begin P``_busy <= 0; P``_written <= 1; end \
      end \
      if (P``_written && m_axi_``P``_bready) P``_written <= 0; \
    end

// A card, 1 MiB of memory behind all of its ports, and its register bus.
module node (
  input clock, input reset,
  output [127:0] tx_data, output [15:0] tx_keep, output tx_last, output tx_bad, output tx_valid,
  input tx_ready,
  input [127:0] rx_data, input [15:0] rx_keep, input rx_last, input rx_bad, input rx_valid,
  output rx_ready);
`include "jobs128_inst.vh"
reg [127:0] memory [0:65535];
assign clk = clock;
assign rst = reset;
assign s_axis_host_tx0_tdata = 0;  // no other frames
assign s_axis_host_tx0_tkeep = 0;
assign s_axis_host_tx0_tlast = 0;
assign s_axis_host_tx0_tuser = 0;
assign s_axis_host_tx0_tvalid = 0;
assign m_axis_host_rx0_tready = 1;
assign tx_data = m_axis_mac_tx0_tdata;
assign tx_keep = m_axis_mac_tx0_tkeep;
assign tx_last = m_axis_mac_tx0_tlast;
assign tx_bad = m_axis_mac_tx0_tuser;
assign tx_valid = m_axis_mac_tx0_tvalid;
assign m_axis_mac_tx0_tready = tx_ready;
assign s_axis_mac_rx0_tdata = rx_data;
assign s_axis_mac_rx0_tkeep = rx_keep;
assign s_axis_mac_rx0_tlast = rx_last;
assign s_axis_mac_rx0_tuser = rx_bad;
assign s_axis_mac_rx0_tvalid = rx_valid;
assign rx_ready = s_axis_mac_rx0_tready;
`READ_PORT(gradient_read)
`READ_PORT(landing_read)
`READ_PORT(root_read)
`WRITE_PORT(gradient_write)
`WRITE_PORT(landing_write)
`WRITE_PORT(root_write)

reg [9:0] aw = 0, ar = 0;
reg [31:0] w = 0, word;
reg awv = 0, wv = 0, bv = 0, arv = 0, rv = 0, toggle = 0;
reg [2:0] taken;
integer k;
assign s_axil_awaddr = aw;
assign s_axil_awprot = 0;
assign s_axil_awvalid = awv;
assign s_axil_wdata = w;
assign s_axil_wstrb = 15;
assign s_axil_wvalid = wv;
assign s_axil_bready = bv;
assign s_axil_araddr = ar;
assign s_axil_arprot = 0;
assign s_axil_arvalid = arv;
assign s_axil_rready = rv;
// Inputs change at falling edges, so that no simulator sees them change at a rising one.
task put(input [9:0] offset, input [31:0] value); begin
  aw = offset; w = value; awv = 1; wv = 1; bv = 1;
  while (awv || wv || bv) begin
    @(posedge clock) taken = {awv && s_axil_awready, wv && s_axil_wready, bv && s_axil_bvalid};
    @(negedge clock) {awv, wv, bv} = {awv, wv, bv} & ~taken;
  end
end endtask
task get(input [9:0] offset); begin
  ar = offset; arv = 1; rv = 1;
  while (arv || rv) begin
    @(posedge clock) taken = {1'b0, arv && s_axil_arready, rv && s_axil_rvalid};
    if (taken[0]) word = s_axil_rdata;
    @(negedge clock) {arv, rv} = {arv, rv} & ~taken[1:0];
  end
end endtask
task entry(input [3:0] of_table, input [15:0] address, input [223:0] value); begin
  for (k = 0; k < 7; k = k + 1) put(10'(32'h0B0 + 4 * k), value[32 * k +: 32]);  // table_data
  toggle = ~toggle;
  put(10'h090, {11'b0, toggle, of_table, address});  // table_write
end endtask

// All that jobs need, for node `me` of two: `other` is neighbor 0, at port 0.
task bring_up(input [7:0] me, input [7:0] other, input [191:0] rows);
  integer q;
  begin
    put(10'h014, {24'h0000_00, me} + 1);                // mac_low
    put(10'h018, {8'd7, me, 16'h0200});                  // mac_high: tenant, node, high bits
    put(10'h01C, {24'h0A00_00, me} + 1);                // ip
    entry(2, 0, 224'({32'h0A00_0001 + {24'b0, other}, 48'h0200_0000_0001 + {40'b0, other}, 1'b0,
                      other, 1'b1}));                    // neighbor
    for (q = 0; q < 3; q = q + 1) entry(0, 16'(q), 224'(rows[64 * (2 - q) +: 64]));
    entry(1, 16'(me), 224'({me, 8'd1, 4'd0, 1'b1}));     // place: chunk `me` is summed here
    entry(1, 16'(other), 224'({1'b1, 104'b0}));          // and the other one comes down
    entry(4, 0, 0);                                      // peer 0 of rows is neighbor 0
    for (q = 0; q < 8; q = q + 1) begin
      entry(5, 16'(q), 224'(q));                         // layer: queue of a class
      entry(6, 16'(2 * q), 224'(56 - 8 * q));            // dscp
      entry(6, 16'(2 * q + 1), 224'(56 - 8 * q));
    end
    entry(7, 0, 0);                                      // threshold
    // table 0: leaves 2, iterations 1, repeats 1, stride 2, chunks 2, peers 1, rows 3, valid
    entry(9, 0, 224'({12'd2, 15'd1, 14'd1, 14'd2, 14'd2, 1'b0, 8'd1, 16'd3, 1'b1}));
    put(10'h200, 0); put(10'h204, 0); put(10'h208, 32'h1000);  // source0: 4,096 beats from 0 on
    put(10'h220, 32'h40000); put(10'h224, 0);            // landing0
    put(10'h228, 32'h60000); put(10'h22C, 0);            // landing1
    put(10'h240, 32'h2000);                              // landing: beats of each
  end
endtask
endmodule

module bench;
localparam ELEMS = 1000, SOURCE = 32'h1000, RESULT = 32'h4000;
reg clock = 0, reset = 1;
always #2 clock = ~clock;
wire [127:0] data0, data1;
wire [15:0] keep0, keep1;
wire last0, last1, bad0, bad1, valid0, valid1, ready0, ready1;
node n0 (clock, reset, data0, keep0, last0, bad0, valid0, ready0,
         data1, keep1, last1, bad1, valid1, ready1);
node n1 (clock, reset, data1, keep1, last1, bad1, valid1, ready1,
         data0, keep0, last0, bad0, valid0, ready0);

function [31:0] float(input integer n);  // of a whole number below 2^24
  integer e;
  begin
    e = 0;
    while (n >> (e + 1) != 0) e = e + 1;
    float = n == 0 ? 0 : ((127 + e) << 23) | ((n << (23 - e)) & 32'h7fffff);
  end
endfunction

// A descriptor: id 42, all_reduce, sum, FP32, raw, class 0, table 0, tensor 3, gen 1.
`define POST(N) \
  N.put(10'h180, {16'd42, 16'h0000}); N.put(10'h184, 0); N.put(10'h188, {16'd3, 16'd1}); \
  N.put(10'h18C, ELEMS); N.put(10'h190, 0); N.put(10'h194, SOURCE); N.put(10'h198, 0); \
  N.put(10'h19C, RESULT); N.put(10'h1A0, 0); N.put(10'h1A4, 0); N.put(10'h1B0, 1);
// Waits for status.completion, reads the record, takes it, and looks at the result.
`define FINISH(N) \
  N.get(10'h004); \
  while (N.word[5] !== 1) begin repeat (50) @(negedge clock); N.get(10'h004); end \
  N.get(10'h1B8); if (N.word !== {16'd42, 16'd0}) wrong = wrong + 1; \
  N.get(10'h1BC); if (N.word !== {4'd0, 4'd0, 8'd0, 16'd2}) wrong = wrong + 1; \
  N.put(10'h1B0, 3); \
  for (j = 0; j < ELEMS; j = j + 1) \
    if (N.memory[(RESULT + 4 * j) >> 4][32 * (j & 3) +: 32] !== float(3 * j)) wrong = wrong + 1;
integer j, wrong = 0;
initial begin
  for (j = 0; j < ELEMS; j = j + 1) begin
    n0.memory[(SOURCE + 4 * j) >> 4][32 * (j & 3) +: 32] = float(j);
    n1.memory[(SOURCE + 4 * j) >> 4][32 * (j & 3) +: 32] = float(2 * j);
  end
  repeat (4) @(negedge clock);
  reset = 0;
  repeat (4) @(negedge clock);
  n0.bring_up(0, 1, {64'h0000008010000080, 64'h0000000000102000, 64'h0000008000002001});
  n1.bring_up(1, 0, {64'h0000008000000000, 64'h0000000010102080, 64'h0000008010002081});
  `POST(n0)
  `POST(n1)
  `FINISH(n0)
  `FINISH(n1)
  if (wrong != 0) $display("FAIL: %0d", wrong); else $display("PASS");
  $finish;
end
initial begin
  #100000 $display("FAIL: no end");
  $finish;
end
endmodule
