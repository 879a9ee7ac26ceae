"""Mutants of the aggregation unit that no test can notice, or that none is asked to, and why."""

#: queues have campaigns of their own: `campaign_fifo`, `campaign_ring`
ELSEWHERE = r"-src \S*hdl/stream/(fifo|block_fifo|steering)\.py:\d+$"
TWO_JOBS = "a job's place is 0 or 1 here: its upper bits are never 1"
ELEMENTS = "no record has more than 64 elements"
BELOW = "n * g is below 2**w, or `Job` refuses it, and so is what is missing times g"
NEGATIVE = "the bound stays negative, and no number of units is less than that"
STORE = "what is answered, and what a job owns, are slots of the store: its upper bits are never 1"
TAILS = "no more tasks are at work than it has places, and they begin three cycles apart"
NUMBERS = "the bit that decides is never 1: a sum has 64 beats at most"
ARGUED = {
    r"-mode inv .*-wire rule\.(sweep\.)?erase_place -wirebit 0 ": "both sets of a slot are "
    "forgotten, in the other order",
    r"-mode const0 .*-wire adder\.out\.(before_last|number) -wirebit ([7-9]|1\d) ": "a sum has 64 "
    "beats at most",
    r"-mode cnot1 .*-ctrlbit ([7-9]|1\d) -wire adder\.out\.(before_last|number) ": NUMBERS,
    r"-wire rule\.other\.(job|gen|leaves|op|lc|tensor|tree|seq|tag|opened) ": "it goes to records "
    "of SwitchML alone, and there nobody reads it",
    r"-mode cnot0 .*-port B -portbit 3 -ctrlbit 14 .*: one, two = ": "leaves of a record that is "
    "emptied or SwitchML's: a claim overwrites them, and SwitchML fills nothing",
    r"-mode cnot1 .*-ctrlbit 1[456] -wire adder\.part0\.(order\d_0|read_addr|write_addr)": TWO_JOBS,
    r"-mode cnot1 .*-ctrlbit [345] -wire rule\.(verdict\S*\.(record|after)|other)\.": TWO_JOBS,
    r"-mode const0 .*-wire rule\.number\d+ -wirebit [123] ": TWO_JOBS,
    r"-mode const0 .*-wire rule\.write_data -wirebit 1(3[2-9]|40) ": ELEMENTS,
    r"-mode cnot1 .*-ctrlbit 1(3[2-9]|40) -wire rule\.verdict\S*\.(record|after)\.": ELEMENTS,
    r"-mode const0 .*\\times\.\S+ -port [DQ] -portbit ([89]|1\d) .*: held = Signal\(prod": BELOW,
    r"-mode cnot1 .*-port B -portbit [0-6] -ctrlbit 7 .*: m\.d\.sync \+= total\.eq\(result\[": (
        f"it is half of that: {BELOW}"
    ),
    r"-mode cnot1 .*-portbit [0-5] -ctrlbit 6 -wire adder\.rows\.(less|twice_less\d) ": NEGATIVE,
    r"-mode const0 .*-portbit [12] -wire adder\.rows\.twice_less8 ": "a bit of negative bounds "
    f"alone: {NEGATIVE}",
    r"-mode const0 .*-port B -portbit 3 .*: Mux\(then_enough, behind - size,": "only rows of eight "
    "units have this bit, and those take two whole beats each: there is never enough without one",
    r"-mode const1 .*-port A -portbit 2 .*: is_open\.eq\(record\.valid & ~record\.closed & ": "of "
    "the operations that a record can have NORM alone looks like NORM then, too",
    r"-mode const0 .*-port Y -portbit ([7-9]|1\d) .*: number\.eq\(Mux\(last, 0, number \+ 1": "a "
    "sum has 64 beats at most",
    r"-mode cnot1 .*-port A -portbit [0-3] -ctrlbit 4 .*: Mux\(then_fits, behind \+ ": "fewer than "
    "16 units wait where rows have 8 at most",
    r"-mode cnot1 .*-portbit [0-3] -ctrlbit 4 -wire adder\.rows\.size ": "no row has 16 units here",
    r"-mode cnot0 .*-port A -portbit 1 -ctrlbit 3 .*: then_fits\.eq\(rest \+ UNITS > bits\)": (
        "with one beat more there is always enough for a second row, be it four units or eight"
    ),
    r"-mode const0 .*-wire rule\.verdict\S*\.offset -wirebit ([2-9]|1[0-3]) ": "an offset of four "
    "or more is of a slot that the store does not have, and below zero the sign decides",
    r"-mode cnot[01] .*-port Q -portbit [1-8] -ctrlbit [1-8] -wire adder\.part0\.read_addr ": (
        "rows change places for those who read and those who write"
    ),
    r"-mode cnot1 .*-ctrlbit 7 -wire adder\.fill": f"it is half of that: {BELOW}",
    r"-mode cnot0 .*-ctrlbit 12 -wire adder\.rows\.task0\.saturates ": "of an order that adds "
    "nothing, nothing saturates",
    r"-mode const0 -cell rule\.records\.array -port \w+_DATA -portbit 1(3[2-9]|40) ": ELEMENTS,
    r"-mode cnot1 .*-portbit [0-5] -ctrlbit [345] -wire adder\.rows\.less ": NEGATIVE,
    r"-mode const0 .*-wire tasks__payload\.answer\.slot -wirebit ([2-9]|1[0-2]) ": STORE,
    r"-mode const0 .*-portbit ([4-9]|1[0-3]) .*: (start|stop) = Signal\(1[34]\)": STORE,
    r"-mode const1 -cell adder\.tails\.array\d+ -port WR_EN ": TAILS,
    r"-mode const0 -cell \S*\$436 -port B -portbit 9 .*: m\.d\.sync \+= out\[part\]": "no slot "
    "holds an operation of code 8 or more",
    r"-mode const0 .*-port A -portbit 3 .*: last_row\.eq\(p\.elems <= Mux": "the lanes of a "
    "row: the 64 elements of a chunk are more either way",
    r"-mode const0 .*-port B -portbit (9|1\d) .*: total\.eq\(base \+ head\.length": "no packet "
    "that counts has 512 bytes",
    r"-mode const0 .*-port D -portbit ([7-9]|1\d) .*: number = Signal\(16\)": NUMBERS,
    r"-mode const0 .*-port D -portbit [456] .*: task = Signal\(known": TWO_JOBS,
}
EXPLAINED = {
    "-ctrlbit 18 -wire rule.verdict$115.job.need_bytes ": "2**18 bytes of a tensor: 65,000 cycles",
    "-wire rule.verdict$115.level ": "a slot claimed anew between the visit's look at it and its "
    "turn, a few cycles which no play has met",
    " -port S -portbit 0 -given rule.verdict$115.rst -feeds rule.events.retransmitted": "an event "
    "of the very cycle before a reset",
}
