//! Handles: slots with a generation, so that a handle kept too long is noticed.

/// Values under 64-bit keys that are never 0.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    vacant: Vec<u32>,
    /// Whether a key may come back after its value was removed, as drivers' handles do.
    reuse: bool,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) const fn new(reuse: bool) -> Self {
        Self { slots: Vec::new(), vacant: Vec::new(), reuse }
    }

    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let index = match self.vacant.pop() {
            Some(index) => {
                self.slots[index as usize].value = Some(value);
                index
            }
            None => {
                self.slots.push(Slot { generation: 0, value: Some(value) });
                (self.slots.len() - 1) as u32
            }
        };
        u64::from(self.slots[index as usize].generation) << 32 | u64::from(index + 1)
    }

    pub(crate) fn get(&self, key: u64) -> Option<&T> {
        let slot = self.slots.get((key as u32).wrapping_sub(1) as usize)?;
        (slot.generation == (key >> 32) as u32).then_some(slot.value.as_ref()).flatten()
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut((key as u32).wrapping_sub(1) as usize)?;
        (slot.generation == (key >> 32) as u32).then_some(slot.value.as_mut()).flatten()
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<T> {
        self.get(key)?;
        let index = (key as u32).wrapping_sub(1);
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.take();
        if !self.reuse {
            slot.generation = slot.generation.wrapping_add(1);
        }
        self.vacant.push(index);
        value
    }

    /// All values with their keys, by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let key = u64::from(slot.generation) << 32 | (index as u64 + 1);
            slot.value.as_ref().map(|value| (key, value))
        })
    }
}
