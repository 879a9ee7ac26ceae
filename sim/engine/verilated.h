// A circuit as Verilator's class, for the harnesses: one copy of it, its clock and its ports.
// Included in front of `ports.h`, which names the ports; sim/engine/verilated.py builds both.

#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "Circuit.h"
#include "Circuit__Syms.h"

// `set(port)`, where a circuit has what `port(root)` is; one without registers has no clock.
template<class Root, class Port, class Set> void if_there(Root &root, Port port, Set set) {
	if constexpr (std::is_invocable_v<Port, Root &>)
		set(port(root));
}

#define PORT(name) [](auto &root) -> decltype((root.name)) { return (root.name); }

#include "inputs.h"

void Circuit___024root___eval_settle(Circuit___024root *);  // Verilator's

struct Noise : VerilatedContext {  // what nobody told, as memories at power-on, is the same noise
	Noise() {
		randReset(2);
		randSeed(29440);
	}
};

struct Design {  // a copy in its power-on state, all inputs 0
	Design() { clear_inputs(root); }
	Noise context;
	Circuit circuit{&context, ""};
	Circuit___024root &root = *circuit.rootp;
	void settle() { Circuit___024root___eval_settle(&root); }  // after a register was set
};

namespace {

// Ports up to 64 bits are numbers, wider ones arrays of 32-bit words; the lowest byte comes first.

template<class T> bool high(const T &port) { return port & 1; }

template<size_t bits, class T> void load(T &port, const uint8_t *bytes) {
	std::memcpy(&port, bytes, (bits + 7) / 8);
}

template<class T> void store(const T &port, uint8_t *bytes, size_t size) {
	std::memcpy(bytes, &port, size);
}

template<class T> void set_bit(T &&port, bool bit) { port = bit; }

template<class Root> void set_clock(Root &root, bool bit) {
	if_there(root, PORT(clk), [&](auto &clk) { clk = bit; });
}

template<class Root> void set_reset(Root &root, bool bit) {
	if_there(root, PORT(rst), [&](auto &rst) { rst = bit; });
}

// One cycle, in two steps: outputs settle, then registers change.
inline void before_edge(Design &d) {
	set_clock(d.root, 0);
	d.circuit.eval();
}

inline void edge(Design &d) {
	set_clock(d.root, 1);
	d.circuit.eval();
}

[[maybe_unused]] inline void tick(Design &d) {
	before_edge(d);
	edge(d);
}

}  // namespace

// The circuit alone, its inputs at rest: what a harness is compared with.
extern "C" __attribute__((visibility("default"))) void bare_run(int64_t n_cycles) {
	Design d;
	set_reset(d.root, 1);
	tick(d), tick(d);
	set_reset(d.root, 0);
	while (n_cycles--)
		tick(d);
}
