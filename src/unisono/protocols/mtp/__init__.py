"""MTP: a master hands out numbered tokens and decides which messages count; NAK transport below."""
