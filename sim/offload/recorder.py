"""What a driver writes, kept so that a coroutine can play it on a bus afterwards."""


class Recorder:
    """Words by address: reads give what was written, or what the bench put there."""

    def __init__(self):
        self.words, self.log = {}, []

    def read(self, address):
        """The word at `address`, 0 before the first write."""
        return self.words.get(address, 0)

    def write(self, address, word):
        """Keep the word, and that it was written now."""
        self.words[address] = word
        self.log.append((address, word))
