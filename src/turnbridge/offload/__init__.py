"""Work that a client's data can make last for ever, done in processes that can be killed."""
