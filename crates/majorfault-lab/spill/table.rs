//! The blocks of this process by their addresses: a table with open addressing, in memory that is given to it.

/// Files that one block may consist of.
pub const MOST: usize = 24;

/// A block. All sizes are whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it begins; 0 where there is none.
    pub address: usize,
    /// Bytes that are mapped.
    pub length: usize,
    /// Bytes of addresses that are kept for it, those that are mapped among them.
    pub room: usize,
    /// Pages of its files, one behind the other.
    pub pieces: [u32; MOST],
    /// How many files.
    pub count: u32,
    /// Whether its file has other blocks, too, so that its room is given back by a hole.
    pub is_part: bool,
}

impl Block {
    /// No block.
    pub const NONE: Block = Block { address: 0, length: 0, room: 0, pieces: [0; MOST], count: 0, is_part: false };
}

/// Blocks by address.
pub struct Table<'m> {
    /// As many as a power of two.
    slots: &'m mut [Block],
    used: usize,
}

impl<'m> Table<'m> {
    /// One without any room.
    pub const fn new() -> Table<'m> {
        Table { slots: &mut [], used: 0 }
    }

    /// How many blocks there are.
    pub fn used(&self) -> usize {
        self.used
    }

    /// How many slots it wants before another block is put in; those that it has, where they are enough.
    pub fn wanted(&self) -> usize {
        let has = self.slots.len();
        if self.used + 1 <= has / 4 * 3 { has } else { (has * 2).max(64) }
    }

    /// Moves into other slots, all without a block and as many as a power of two, and gives those of before back.
    pub fn move_to(&mut self, slots: &'m mut [Block]) -> &'m mut [Block] {
        let before = core::mem::replace(&mut self.slots, slots);
        before.iter().filter(|block| block.address != 0).for_each(|block| self.place(*block));
        before
    }

    /// Puts a block in; there must be room.
    pub fn insert(&mut self, block: Block) {
        self.place(block);
        self.used += 1;
    }

    /// The block that begins there.
    pub fn find(&self, address: usize) -> Option<Block> {
        self.slot_of(address).and_then(|at| self.slots.get(at)).copied()
    }

    /// Takes the block out that begins there.
    pub fn remove(&mut self, address: usize) -> Option<Block> {
        let at = self.slot_of(address)?;
        let block = core::mem::replace(self.slots.get_mut(at)?, Block::NONE);
        self.used -= 1;
        self.close_gap(at);
        Some(block)
    }

    /// The block in a slot, and how many slots there are: for walks.
    pub fn slots(&self) -> &[Block] {
        self.slots
    }

    /// The same, to change all but addresses.
    pub fn slots_mut(&mut self) -> &mut [Block] {
        self.slots
    }

    fn mask(&self) -> usize {
        self.slots.len().wrapping_sub(1)
    }

    /// Where a block of this address is looked for first.
    fn home(&self, address: usize) -> usize {
        // Fibonacci hashing (Knuth, volume 3, 6.4) of the page's number.
        ((address >> 12).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) & self.mask()
    }

    fn slot_of(&self, address: usize) -> Option<usize> {
        let mut at = self.home(address);
        loop {
            match self.slots.get(at)?.address {
                0 => return None,
                other if other == address => return Some(at),
                _ => at = (at + 1) & self.mask(),
            }
        }
    }

    fn place(&mut self, block: Block) {
        let mut at = self.home(block.address);
        while self.slots.get(at).is_some_and(|slot| slot.address != 0) {
            at = (at + 1) & self.mask();
        }
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = block;
        }
    }

    /// Blocks behind a slot that became empty are looked for beyond it: puts them where they are found again.
    fn close_gap(&mut self, gap: usize) {
        let mut at = (gap + 1) & self.mask();
        while let Some(block) = self.slots.get(at).copied().filter(|block| block.address != 0) {
            self.slots[at] = Block::NONE;
            self.place(block);
            at = (at + 1) & self.mask();
        }
    }
}
