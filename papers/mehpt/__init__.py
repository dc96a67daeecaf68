"""ME-HPT (HPCA 2023): a file a table or figure."""
