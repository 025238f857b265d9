"""`seeklog report`: a store as one self-contained HTML page.

`gather` reads the store into `facts`, in bounded memory; `segment_map` and `charts` draw them as SVG; `page` builds the
page. All data is escaped in `markup`.
"""
