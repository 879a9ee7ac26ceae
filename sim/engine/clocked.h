// One clock cycle of a card, in two steps: outputs settle, then registers change.
// Included behind `design.cpp` and `ports.h`.

#pragma once

namespace {

inline void before_edge(Design &d) {
	if constexpr (CONVERGES) {
		rearm(d);
		d.eval();
	} else {
		set_clock<0>(d);
		d.step();
	}
}

inline void edge(Design &d) {
	if constexpr (CONVERGES)
		d.commit();
	else {
		set_clock<1>(d);
		d.step();
	}
}

inline void tick(Design &d) {
	before_edge(d);
	edge(d);
}

}  // namespace
