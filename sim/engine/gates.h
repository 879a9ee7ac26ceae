// Copies of a circuit as bit planes, for the C++ that sim/gates.py writes.

#include <cstdint>
#include <cstring>
#include <vector>

#pragma GCC push_options
#pragma GCC optimize("O3")  // gates themselves gain nothing from it but compile time

constexpr int COPIES = N_COPIES, COLUMNS = COPIES / 32;
typedef uint32_t V __attribute__((vector_size(4 * COLUMNS)));

// Copy s is bit s / COLUMNS of column s % COLUMNS.

// Bit j of vector k <-> bit k of vector j, in each column: planes to one word a copy, and back.
static void transpose(V a[32]) {
	uint32_t mask = 0xffff;
	for (int step = 16; step; step >>= 1, mask ^= mask << step)
		for (int k = 0; k < 32; k = ((k | step) + 1) & ~step) {
			V t = ((a[k] >> step) ^ a[k | step]) & mask;
			a[k] ^= t << step;
			a[k | step] ^= t;
		}
}

static bool any(const V &v) {
	uint32_t all = 0;
	for (int c = 0; c < COLUMNS; c++) all |= v[c];
	return all;
}

template<int WIDTH> struct Words {  // of each copy, 32 bits at a time
	static constexpr int GROUPS = (WIDTH + 31) / 32;
	V groups[GROUPS][32];

	uint32_t &at(int group, int copy) {
		return reinterpret_cast<uint32_t *>(groups[group])[copy];
	}

	void from_planes(const V *planes) {
		for (int g = 0; g < GROUPS; g++) {
			for (int k = 0; k < 32; k++)
				groups[g][k] = 32 * g + k < WIDTH ? planes[32 * g + k] : V{};
			transpose(groups[g]);
		}
	}

	void to_planes(V *planes) {
		for (int g = 0; g < GROUPS; g++) {
			transpose(groups[g]);
			for (int k = 0; k < 32 && 32 * g + k < WIDTH; k++)
				planes[32 * g + k] = groups[g][k];
		}
	}
};

template<int WIDTH, int DEPTH, int ADDR> struct Memory {
	using Row = Words<WIDTH>;
	std::vector<uint32_t> rows = std::vector<uint32_t>(size_t(COPIES) * DEPTH * Row::GROUPS);
	Row row;
	Words<ADDR + 1> where;

	uint32_t *place(int copy, uint32_t addr) {
		if (addr >= DEPTH) addr = 0;  // such a word is undefined
		return rows.data() + (size_t(addr) * COPIES + copy) * Row::GROUPS;
	}

	void read(const V *addr, V *planes) {
		where.from_planes(addr);
		for (int copy = 0; copy < COPIES; copy++) {
			const uint32_t *from = place(copy, where.at(0, copy));
			for (int g = 0; g < Row::GROUPS; g++) row.at(g, copy) = from[g];
		}
		row.to_planes(planes);
	}

	void write(const V *addr, const V *planes) {  // the enable is the bit above the address
		if (!any(addr[ADDR])) return;
		where.from_planes(addr);
		row.from_planes(planes);
		for (int copy = 0; copy < COPIES; copy++)
			if (uint32_t w = where.at(0, copy); w >> ADDR) {
				uint32_t *to = place(copy, w & ((1u << ADDR) - 1));
				for (int g = 0; g < Row::GROUPS; g++) to[g] = row.at(g, copy);
			}
	}
};

#pragma GCC pop_options
